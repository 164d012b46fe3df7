//! The columns that a neighbour join gives.

use datafusion::common::JoinSide;
use datafusion::physical_plan::joins::utils::ColumnIndex;

/// A column of what a neighbour join gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum JoinedColumn {
    /// A column of the left or the right input, by its number there.
    OfSide(JoinSide, usize),
    /// The separation of a pair, degrees: to the last bit what the function gives. NULL beside a row without a partner.
    Separation,
    /// What an expression of one input's columns says of the row: by its number among the join's row expressions. It is computed once
    /// for a row rather than for each of its pairs.
    OfRow(usize),
    /// Something about all partners of a probe row. A join that gives one of these gives one row for each probe row rather than for
    /// each pair, and no columns of the build side.
    OfPartners(OfPartners),
}

/// What can be known of a probe row's partners without making pairs of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfPartners {
    /// How many there are.
    Count,
    /// How many rows the join makes of the probe row: in an outer join one, where there is no partner.
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
