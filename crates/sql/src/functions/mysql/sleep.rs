//! `SLEEP`: a row that takes so many seconds. It ends with its statement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, Int64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::interrupt;

pub(super) const SLEEP: &str = "mysql_sleep";

/// How soon the end of a statement is noticed.
const STEP: Duration = Duration::from_millis(20);

pub(super) fn sleep() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Sleep {
        signature: Signature::exact(vec![DataType::Float64], Volatility::Volatile),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep {
    signature: Signature,
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        SLEEP
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [seconds] = arrays.as_slice() else {
            return exec_err!("SLEEP takes one argument");
        };
        let seconds = seconds.as_primitive::<Float64Type>();
        let constant = matches!(args.args.as_slice(), [ColumnarValue::Scalar(_)]);
        for row in 0..args.number_rows {
            let at = if constant { 0 } else { row };
            if !seconds.is_valid(at) || seconds.value(at) < 0.0 {
                return exec_err!("SLEEP takes a number of seconds that is not negative");
            }
            wait(seconds.value(at))?;
        }
        let done = Int64Array::from(vec![0; args.number_rows]);
        Ok(ColumnarValue::Array(Arc::new(done)))
    }
}

fn wait(seconds: f64) -> Result<()> {
    let begun = Instant::now();
    loop {
        interrupt::check()?;
        let left = seconds - begun.elapsed().as_secs_f64();
        if left <= 0.0 {
            return Ok(());
        }
        std::thread::sleep(STEP.min(Duration::from_secs_f64(left.min(1.0))));
    }
}
