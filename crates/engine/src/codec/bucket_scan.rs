//! How the scan of a shuffle's buckets travels: with the places of all rows that it reads.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err, internal_err};
use datafusion_proto::protobuf;
use prost::Message;

use super::foreign;
use crate::exec::BucketScanExec;
use crate::shuffle::{Holder, KeptPiece, KeptRun, ShuffleId};

#[derive(Clone, PartialEq, Message)]
pub(super) struct BucketScanMessage {
    #[prost(uint64, tag = "1")]
    front_end: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(message, optional, tag = "3")]
    schema: Option<protobuf::Schema>,
    /// Who keeps rows.
    #[prost(message, repeated, tag = "4")]
    holders: Vec<HolderMessage>,
    /// The pieces in their order, a number of each in each of the lists: who keeps its rows, by the place among the holders; the phase and the run
    /// that gave them; its number in that run; and how many there are.
    #[prost(uint32, repeated, tag = "5")]
    holder_of: Vec<u32>,
    #[prost(uint64, repeated, tag = "6")]
    phase_of: Vec<u64>,
    #[prost(uint64, repeated, tag = "7")]
    run_of: Vec<u64>,
    #[prost(uint32, repeated, tag = "8")]
    at: Vec<u32>,
    #[prost(uint64, repeated, tag = "9")]
    rows: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct HolderMessage {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(bool, tag = "2")]
    is_front_end: bool,
}

impl BucketScanMessage {
    pub fn of(scan: &BucketScanExec) -> Result<Self> {
        if scan.is_bound() {
            return internal_err!("a scan of a particular bucket was to be sent elsewhere");
        }
        let shuffle = scan.shuffle();
        let schema = datafusion::physical_plan::ExecutionPlan::schema(scan);
        let mut message = Self {
            front_end: shuffle.front_end,
            number: shuffle.number,
            schema: Some(schema.as_ref().try_into().map_err(foreign)?),
            ..Self::default()
        };
        for piece in scan.pieces().iter() {
            let holder = HolderMessage {
                address: piece.holder.address.clone(),
                is_front_end: piece.holder.is_front_end,
            };
            let known = message.holders.iter().position(|it| *it == holder);
            let place = known.unwrap_or_else(|| {
                message.holders.push(holder);
                message.holders.len() - 1
            });
            message
                .holder_of
                .push(u32::try_from(place).unwrap_or(u32::MAX));
            message.phase_of.push(piece.run.phase);
            message.run_of.push(piece.run.run);
            message.at.push(piece.at);
            message.rows.push(piece.rows);
        }
        Ok(message)
    }

    pub fn into_scan(self) -> Result<BucketScanExec> {
        let holders = self.holders.into_iter().map(|it| {
            Arc::new(Holder {
                address: it.address,
                is_front_end: it.is_front_end,
            })
        });
        let holders: Vec<Arc<Holder>> = holders.collect();
        let pieces = self.holder_of.len();
        let lengths = [
            self.phase_of.len(),
            self.run_of.len(),
            self.at.len(),
            self.rows.len(),
        ];
        if lengths.iter().any(|length| *length != pieces) {
            return internal_err!("a scan of a bucket arrived with lists of different lengths");
        }
        let pieces = (0..pieces).map(|piece| {
            let holder = holders.get(self.holder_of[piece] as usize).cloned();
            let holder = holder.ok_or_else(|| {
                internal_datafusion_err!("a scan of a bucket arrived without who keeps its rows")
            });
            Ok(KeptPiece {
                holder: holder?,
                run: KeptRun {
                    phase: self.phase_of[piece],
                    run: self.run_of[piece],
                },
                at: self.at[piece],
                rows: self.rows[piece],
            })
        });
        let pieces = pieces.collect::<Result<Vec<_>, DataFusionError>>()?;
        let Some(schema) = &self.schema else {
            return internal_err!("a scan of a bucket arrived without its columns");
        };
        let schema: Schema = schema.try_into().map_err(foreign)?;
        let shuffle = ShuffleId {
            front_end: self.front_end,
            number: self.number,
        };
        Ok(BucketScanExec::new(
            shuffle,
            pieces.into(),
            Arc::new(schema),
        ))
    }
}
