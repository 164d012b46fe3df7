//! The function by which a statement stores a value in a column before it goes on with it, as UPDATE does from left to right.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{StoredColumn, StoredType};
use crate::SqlError;

/// `mysql_store(value, row, 'column', 'type')`: what a column of the type stores of a value; the row and the column are for messages. The
/// column may hold NULL: whether it does not is checked where it is written.
pub(crate) const STORE: &str = "mysql_store";

pub(crate) fn store() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Store {
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Store {
    signature: Signature,
}

impl ScalarUDFImpl for Store {
    fn name(&self) -> &str {
        STORE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [value, _, _, _] = arguments else {
            return plan_err!("{STORE} takes a value, a row, a column and a type");
        };
        Ok(vec![
            value.clone(),
            DataType::Int64,
            DataType::Utf8,
            DataType::Utf8,
        ])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("{STORE} gives what its last argument says")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let ty = stored_type(args.scalar_arguments.get(3).copied().flatten())?;
        Ok(Arc::new(Field::new(STORE, ty.data_type(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [
            value,
            row,
            ColumnarValue::Scalar(name),
            ColumnarValue::Scalar(ty),
        ] = args.args.as_slice()
        else {
            return plan_err!("{STORE} takes a value, a row and two constants");
        };
        let column = StoredColumn {
            name: name.try_as_str().flatten().unwrap_or_default().to_owned(),
            ty: stored_type(Some(ty))?,
            nullable: true,
        };
        let is_constant = matches!(value, ColumnarValue::Scalar(_));
        let values = value.to_array(if is_constant { 1 } else { args.number_rows })?;
        match column.of_column(&values) {
            Ok(stored) if is_constant => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &stored, 0,
            )?)),
            Ok(stored) => Ok(ColumnarValue::Array(stored)),
            Err((at, error)) => {
                let rows = cast(&row.to_array(args.number_rows)?, &DataType::Int64)?;
                let row = rows.as_primitive::<Int64Type>().value(at);
                let sentence = format!("row {row}: {}", error.sentence());
                let error = SqlError::new(sentence).with_code(error.code());
                Err(DataFusionError::External(Box::new(error)))
            }
        }
    }
}

fn stored_type(written: Option<&ScalarValue>) -> Result<StoredType> {
    let text = written.and_then(|written| written.try_as_str().flatten());
    match text.and_then(StoredType::read) {
        Some(ty) => Ok(ty),
        None => plan_err!("{STORE} takes the type of a column as its last argument"),
    }
}
