//! Conditions as zone maps are asked them: comparisons of columns with constants, and what is made of these by AND and OR.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal,
};
use vortex::expr::{
    Expression, and, col, eq, gt, gt_eq, is_not_null, is_null, lt, lt_eq, not_eq, or, or_collect,
};

/// A list of this many values becomes as many comparisons, too long a one beyond it.
const LONGEST_LIST: usize = 32;

/// The columns of a condition.
pub(super) struct HintColumns<'a> {
    pub schema: &'a Schema,
    /// The name of each in the files.
    pub name: &'a dyn Fn(usize) -> String,
}

impl HintColumns<'_> {
    /// What holds for each row for which a condition is true; `None` if minima and maxima can tell nothing of it. There is no NOT in it:
    /// what is left out of an AND makes it weaker, never stronger.
    pub fn hint(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Expression> {
        if let Some(binary) = condition.downcast_ref::<BinaryExpr>() {
            return self.of_binary(binary);
        }
        if let Some(it) = condition.downcast_ref::<IsNullExpr>() {
            return self.column(it.arg()).map(|(_, column)| is_null(column));
        }
        if let Some(it) = condition.downcast_ref::<IsNotNullExpr>() {
            return self.column(it.arg()).map(|(_, column)| is_not_null(column));
        }
        self.of_list(condition.downcast_ref::<InListExpr>()?)
    }

    fn of_binary(&self, binary: &BinaryExpr) -> Option<Expression> {
        let (left, right) = (binary.left(), binary.right());
        match binary.op() {
            Operator::And => match (self.hint(left), self.hint(right)) {
                (Some(left), Some(right)) => Some(and(left, right)),
                (one, other) => one.or(other),
            },
            Operator::Or => Some(or(self.hint(left)?, self.hint(right)?)),
            op => self
                .comparison(left, *op, right)
                .or_else(|| self.comparison(right, op.swap()?, left)),
        }
    }

    fn comparison(
        &self,
        column: &Arc<dyn PhysicalExpr>,
        op: Operator,
        constant: &Arc<dyn PhysicalExpr>,
    ) -> Option<Expression> {
        let compare = match op {
            Operator::Eq => eq,
            Operator::NotEq => not_eq,
            Operator::Lt => lt,
            Operator::LtEq => lt_eq,
            Operator::Gt => gt,
            Operator::GtEq => gt_eq,
            _ => return None,
        };
        let (data_type, column) = self.column(column)?;
        Some(compare(column, constant_of(constant, data_type)?))
    }

    fn of_list(&self, list: &InListExpr) -> Option<Expression> {
        if list.negated() || list.list().len() > LONGEST_LIST {
            return None;
        }
        let (data_type, column) = self.column(list.expr())?;
        let equal = |constant| Some(eq(column.clone(), constant_of(constant, data_type)?));
        let equal: Option<Vec<Expression>> = list.list().iter().map(equal).collect();
        or_collect(equal?)
    }

    /// A column by itself, with its type.
    fn column(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<(&DataType, Expression)> {
        let column = expr.downcast_ref::<Column>()?;
        let data_type = self.schema.fields().get(column.index())?.data_type();
        Some((data_type, col((self.name)(column.index()))))
    }
}

/// A constant of a column's own type, with which its minima and maxima are compared.
fn constant_of(expr: &Arc<dyn PhysicalExpr>, data_type: &DataType) -> Option<Expression> {
    let value = expr.downcast_ref::<Literal>()?.value();
    let has_order = match data_type {
        DataType::Interval(_) | DataType::Duration(_) => false,
        other => other.is_primitive() || other.is_string() || *other == DataType::Boolean,
    };
    if !has_order || value.is_null() || value.data_type() != *data_type {
        return None;
    }
    store::constant(&value.to_array().ok()?)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, TimeUnit};
    use datafusion::common::ScalarValue;
    use datafusion::physical_expr::expressions::{cast, col as column, in_list, is_null, lit};

    use super::*;

    fn schema() -> Schema {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("name", DataType::Utf8View, true),
            Field::new("seen", time, true),
            Field::new("price", DataType::Decimal128(10, 2), true),
            Field::new("flux", DataType::Float32, true),
        ])
    }

    fn named(name: &str) -> Arc<dyn PhysicalExpr> {
        column(name, &schema()).unwrap()
    }

    fn binary(
        left: Arc<dyn PhysicalExpr>,
        op: Operator,
        right: Arc<dyn PhysicalExpr>,
    ) -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(left, op, right))
    }

    fn hint(condition: &Arc<dyn PhysicalExpr>) -> Option<String> {
        let schema = schema();
        let columns = HintColumns {
            schema: &schema,
            name: &|at| format!("c{at}"),
        };
        columns.hint(condition).map(|hint| hint.to_string())
    }

    #[test]
    fn what_minima_and_maxima_tell_is_asked() {
        let id = || named("id");
        let small = binary(id(), Operator::Lt, lit(5_i64));
        let wanted = hint(&small).unwrap();
        assert!(wanted.contains("c0") && wanted.contains('5'), "{wanted}");
        assert_eq!(
            hint(&binary(lit(5_i64), Operator::Gt, id())),
            Some(wanted.clone())
        );
        // A part that tells nothing is left out of an AND, and takes an OR with it.
        let other = binary(
            cast(id(), &schema(), DataType::Float64).unwrap(),
            Operator::Gt,
            lit(1.0),
        );
        assert_eq!(hint(&other), None);
        let both = binary(Arc::clone(&small), Operator::And, Arc::clone(&other));
        assert_eq!(hint(&both), Some(wanted));
        assert_eq!(hint(&binary(small, Operator::Or, other)), None);
        assert!(hint(&is_null(id()).unwrap()).is_some());
    }

    #[test]
    fn constants_are_of_the_columns_own_types() {
        let time = ScalarValue::TimestampMicrosecond(Some(1), None);
        let price = ScalarValue::Decimal128(Some(150), 10, 2);
        for (name, constant, is_asked) in [
            ("name", ScalarValue::Utf8View(Some("x".to_owned())), true),
            ("name", ScalarValue::Utf8(Some("x".to_owned())), false),
            ("seen", time, true),
            ("price", price, true),
            ("price", ScalarValue::Decimal128(Some(150), 10, 1), false),
            ("flux", ScalarValue::Float32(Some(1.5)), true),
            ("flux", ScalarValue::Float64(Some(1.5)), false),
            ("id", ScalarValue::Int64(None), false),
        ] {
            let equal = binary(named(name), Operator::Eq, lit(constant.clone()));
            assert_eq!(hint(&equal).is_some(), is_asked, "{name} = {constant}");
        }
    }

    #[test]
    fn lists_are_asked_up_to_a_length() {
        let list = |length: i64, negated| {
            let values = (0..length).map(lit).collect();
            hint(&in_list(named("id"), values, &negated, &schema()).unwrap())
        };
        assert!(list(3, false).is_some());
        assert_eq!(list(3, true), None);
        assert_eq!(list(LONGEST_LIST as i64 + 1, false), None);
    }
}
