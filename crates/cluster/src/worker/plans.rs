//! The plans of shares: each comes and is decoded once for all shares of a phase, and is forgotten when no share has named it for a while.
//!
//! A plan is known by the SHA-256 of its bytes and of the parts that it reads, so that no statement can be made to look like another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::{EngineError, SharePlan};
use tokio::sync::OnceCell;

use crate::messages::PartName;

/// Plans that are kept at most, and bytes of them.
const MOST_PLANS: usize = 64;
const MOST_BYTES: usize = 64 << 20;
/// How long a plan is kept that no share names.
const IDLE: Duration = Duration::from_secs(30);

/// A plan as it came.
#[derive(Debug)]
pub(super) struct KnownPlan {
    bytes: Vec<u8>,
    parts: Vec<i64>,
    decoded: OnceCell<SharePlan>,
}

#[derive(Debug)]
struct Entry {
    plan: Arc<KnownPlan>,
    used: Instant,
}

/// The plans of shares.
#[derive(Debug, Default)]
pub(super) struct Plans {
    plans: Mutex<HashMap<String, Entry>>,
    num_decoded: AtomicU64,
}

impl Plans {
    /// A plan that came before.
    pub fn get(&self, digest: &str) -> Option<Arc<KnownPlan>> {
        let mut plans = self.lock();
        let entry = plans.get_mut(digest)?;
        entry.used = Instant::now();
        Some(Arc::clone(&entry.plan))
    }

    /// Keeps a plan that has come; the one that did so first, if another has come under this digest.
    pub fn keep(&self, digest: &str, bytes: &[u8], parts: &[PartName]) -> Arc<KnownPlan> {
        if let Some(known) = self.get(digest) {
            return known;
        }
        let plan = Arc::new(KnownPlan {
            bytes: bytes.to_vec(),
            parts: parts.iter().map(|it| it.part).collect(),
            decoded: OnceCell::new(),
        });
        let mut plans = self.lock();
        let entry = plans.entry(digest.to_owned()).or_insert_with(|| Entry {
            plan,
            used: Instant::now(),
        });
        let kept = Arc::clone(&entry.plan);
        make_room(&mut plans, digest);
        kept
    }

    /// Forgets the plans that read a part, which shall go.
    pub fn forget_part(&self, part: i64) {
        self.lock().retain(|_, it| !it.plan.parts.contains(&part));
    }

    /// Forgets the plans that no share has named for a while: they keep the directories of their parts.
    pub fn forget_idle(&self) {
        self.lock().retain(|_, it| it.used.elapsed() < IDLE);
    }

    /// Plans that were decoded since the start.
    pub fn num_decoded(&self) -> u64 {
        self.num_decoded.load(Relaxed)
    }

    /// The decoded plan: the first share that needs it decodes it, and the others wait for that.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub async fn decoded(
        &self,
        plan: &KnownPlan,
        decode: impl FnOnce(&[u8]) -> Result<SharePlan, EngineError>,
    ) -> Result<SharePlan, EngineError> {
        let decoded = plan.decoded.get_or_try_init(async || {
            let decoded = decode(&plan.bytes)?;
            self.num_decoded.fetch_add(1, Relaxed);
            Ok::<_, EngineError>(decoded)
        });
        decoded.await.cloned()
    }

    /// Every change leaves it whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets those that were named longest ago, as long as there are too many beside this one.
fn make_room(plans: &mut HashMap<String, Entry>, but: &str) {
    let bytes = |plans: &HashMap<String, Entry>| -> usize {
        plans.values().map(|it| it.plan.bytes.len()).sum()
    };
    while plans.len() > MOST_PLANS || bytes(plans) > MOST_BYTES {
        let others = plans.iter().filter(|(digest, _)| *digest != but);
        let oldest = others.min_by_key(|(_, it)| it.used);
        let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) else {
            return;
        };
        plans.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(part: i64) -> PartName {
        PartName {
            part,
            digest: 0,
            database: String::new(),
            table: String::new(),
        }
    }

    #[test]
    fn plans_are_kept_within_bounds_and_go_with_their_parts() {
        let plans = Plans::default();
        for number in 0..200 {
            plans.keep(&number.to_string(), &[0; 10], &[part(number)]);
        }
        assert!(plans.get("135").is_none() && plans.get("136").is_some());
        plans.forget_part(150);
        assert!(plans.get("150").is_none() && plans.get("151").is_some());
        let large = plans.keep("large", &vec![1; MOST_BYTES + 1], &[]);
        assert!(plans.get("151").is_none(), "there is no room beside it");
        assert!(Arc::ptr_eq(&large, &plans.keep("large", &[], &[])));
        plans.keep("small", &[1], &[]);
        assert!(plans.get("large").is_none() && plans.get("small").is_some());
        plans.lock().get_mut("small").unwrap().used -= IDLE;
        plans.forget_idle();
        assert!(plans.get("small").is_none());
    }

    #[tokio::test]
    async fn errors_are_not_kept() {
        let plans = Plans::default();
        let plan = plans.keep("it", b"bytes", &[]);
        for _ in 0..2 {
            let failed = plans.decoded(&plan, |bytes| {
                assert_eq!(bytes, b"bytes");
                Err(EngineError::Query("no".to_owned()))
            });
            assert!(failed.await.is_err());
        }
        assert_eq!(plans.num_decoded(), 0);
    }
}
