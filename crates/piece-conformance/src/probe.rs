//! The function `probe(tag, id)`, which gives the id and tells the case of its tag which rows are computed, wherever that is in this
//! process. At one row it can do what goes wrong in pieces.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use engine::Session;
use sql::{ErrorCode, SqlError, interrupt};

use crate::LONGEST;

/// What a probe says when it fails.
pub(crate) const FAILURE: &str = "the probe has met the row at which it fails";
/// The number of that error.
pub(crate) const FAILURE_CODE: ErrorCode = ErrorCode::OUT_OF_RANGE;

/// What a probe does at its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    Fail,
    Panic,
    /// Waits until the probe is released or the statement of the thread has ended.
    Wait,
}

/// What a case sees of the pieces of its statement.
#[derive(Debug)]
pub(crate) struct Probe {
    tag: i64,
    at: i64,
    action: Action,
    /// How often each row was computed.
    computed: Mutex<HashMap<i64, u32>>,
    waiting: AtomicUsize,
    is_released: AtomicBool,
}

static PROBES: LazyLock<Mutex<HashMap<i64, Arc<Probe>>>> = LazyLock::new(Mutex::default);
static NEXT_TAG: AtomicI64 = AtomicI64::new(1);

impl Probe {
    /// A probe that does something at the row of this key.
    pub fn new(action: Action, at: i64) -> Arc<Self> {
        let probe = Arc::new(Self {
            tag: NEXT_TAG.fetch_add(1, SeqCst),
            at,
            action,
            computed: Mutex::default(),
            waiting: AtomicUsize::new(0),
            is_released: AtomicBool::new(false),
        });
        let mut probes = PROBES.lock().unwrap();
        probes.insert(probe.tag, Arc::clone(&probe));
        probe
    }

    /// Its call, as a statement has it.
    pub fn call(&self) -> String {
        format!("probe({}, id)", self.tag)
    }

    /// How many rows were computed, each as often as it was.
    pub fn rows(&self) -> usize {
        let computed = self.computed.lock().unwrap();
        computed.values().map(|times| *times as usize).sum()
    }

    /// How often the row of a key was computed.
    pub fn times(&self, id: i64) -> u32 {
        let computed = self.computed.lock().unwrap();
        computed.get(&id).copied().unwrap_or(0)
    }

    /// How many threads wait in it.
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Lets those go on that wait in it, and all that come.
    pub fn release(&self) {
        self.is_released.store(true, SeqCst);
    }

    fn meet(&self, id: i64) -> Result<()> {
        *self.computed.lock().unwrap().entry(id).or_default() += 1;
        if id != self.at {
            return Ok(());
        }
        match self.action {
            Action::Nothing => Ok(()),
            Action::Fail => {
                let error = SqlError::new(FAILURE).with_code(FAILURE_CODE);
                Err(DataFusionError::External(Box::new(error)))
            }
            Action::Panic => panic!("the probe has met the row at which it panics"),
            Action::Wait => {
                self.waiting.fetch_add(1, SeqCst);
                let outcome = self.wait();
                self.waiting.fetch_sub(1, SeqCst);
                outcome
            }
        }
    }

    /// Waits as work does that is far from its end: its checks move the thread's other tasks to another thread, so that the statement's
    /// other pieces go on.
    fn wait(&self) -> Result<()> {
        let began = Instant::now();
        while !self.is_released.load(SeqCst) {
            interrupt::check()?;
            if began.elapsed() > LONGEST * 2 {
                return exec_err!("a probe was neither released nor ended");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Registers the probe in a session, before its first statement.
pub fn register_probe(session: &Session) {
    session
        .context()
        .register_udf(ScalarUDF::from(ProbeFunction {
            signature: Signature::exact(
                vec![DataType::Int64, DataType::Int64],
                Volatility::Immutable,
            ),
        }));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ProbeFunction {
    signature: Signature,
}

impl ScalarUDFImpl for ProbeFunction {
    fn name(&self) -> &str {
        "probe"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [tags, ids] = arrays.as_slice() else {
            return exec_err!("a probe takes its tag and a key");
        };
        let (tags, ids) = (
            tags.as_primitive::<Int64Type>(),
            ids.as_primitive::<Int64Type>(),
        );
        for (tag, id) in tags.values().iter().zip(ids.values()) {
            let probe = PROBES.lock().unwrap().get(tag).cloned();
            match probe {
                Some(probe) => probe.meet(*id)?,
                None => return exec_err!("there is no probe {tag}"),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(
            ids.values().to_vec(),
        ))))
    }
}
