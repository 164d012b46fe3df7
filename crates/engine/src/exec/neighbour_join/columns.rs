//! The output columns of a neighbour join.

use datafusion::common::JoinSide;
use datafusion::physical_plan::joins::utils::ColumnIndex;

/// An output column of a neighbour join.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum JoinedColumn {
    /// A column of the left or the right input, by its index there.
    OfSide(JoinSide, usize),
    /// The separation of a pair in degrees, equal to the function's value to the last bit. NULL for a row without a partner.
    Separation,
    /// An expression over one input's columns, by its index among the join's row expressions. It is computed once for a row rather than for
    /// each of its pairs.
    OfRow(usize),
    /// An aggregate over all partners of a probe row. A join with one of these outputs one row for each probe row rather than for each
    /// pair, and
    /// no columns of the build side.
    OfPartners(PartnerAggregate),
}

/// An aggregate over a probe row's partners that needs no pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartnerAggregate {
    /// The number of partners.
    Count,
    /// The number of rows that the join outputs for the probe row: one in an outer join without a partner.
    Rows,
    /// The sum of the separations, degrees; NULL without a partner.
    SumOfSeparations,
    /// The least separation, degrees; NULL without a partner.
    LeastSeparation,
}

impl JoinedColumn {
    /// The number of a column of this side, if it is one.
    pub fn of(self, side: JoinSide) -> Option<usize> {
        match self {
            Self::OfSide(of, at) if of == side => Some(at),
            _ => None,
        }
    }

    /// As the condition of a join names it; nothing about all partners can be named so. What is of neither side has numbers of its own:
    /// 0 is the separation, the others are row expressions.
    pub(crate) fn index(self) -> Option<ColumnIndex> {
        match self {
            Self::OfSide(side, index) => Some(ColumnIndex { side, index }),
            Self::Separation => Some(ColumnIndex {
                side: JoinSide::None,
                index: 0,
            }),
            Self::OfRow(expr) => Some(ColumnIndex {
                side: JoinSide::None,
                index: expr + 1,
            }),
            Self::OfPartners(_) => None,
        }
    }
}

/// The inverse of [`JoinedColumn::index`].
impl From<&ColumnIndex> for JoinedColumn {
    fn from(column: &ColumnIndex) -> Self {
        match (column.side, column.index) {
            (JoinSide::None, 0) => Self::Separation,
            (JoinSide::None, expr) => Self::OfRow(expr - 1),
            (side, index) => Self::OfSide(side, index),
        }
    }
}
