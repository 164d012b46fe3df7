//! Which joins can run piece by piece.
//!
//! Those of which each row's partners are all in its own sub-chunk. A piece is a union of sub-chunks ([`super::locality`]): it has a
//! row's partners exactly if the whole tables have them, and whether it has other chunks too changes nothing.

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::JoinOnRef;

use super::locality::{CoverageFormula, KeyOrigin, Locality, MAX_VARIANTS, Variant, origin_of};

/// What matters of a join.
pub(super) struct JoinShape<'a> {
    pub join_type: JoinType,
    /// Pairs of equal expressions of the left and the right side.
    pub on: JoinOnRef<'a>,
    pub nulls_equal: NullEquality,
    /// NOT IN: a NULL anywhere on one side decides about every row of the other.
    pub null_aware: bool,
    /// How many columns the left and the right side have.
    pub widths: (usize, usize),
    /// Which columns of left and right, side by side, the join gives, if it projects.
    pub projection: Option<&'a [usize]>,
}

/// Where a join of two subtrees can run.
pub(super) fn join_locality(shape: &JoinShape<'_>, left: Locality, right: Locality) -> Locality {
    use Locality::{Anywhere, Pieces};
    let carried = CarriedSides::by(shape.join_type);
    match (left, right) {
        (Anywhere, Anywhere) => Anywhere,
        // NOT IN: whether some row of the other side is NULL is not known within a piece.
        (Pieces { .. }, _) | (_, Pieces { .. }) if shape.null_aware => Locality::Global,
        (left @ Pieces { partial: false, .. }, Anywhere) if carried.left => {
            let right = vec![None; shape.widths.1];
            left.map_columns(|columns| output(shape, columns, &right))
        }
        (Anywhere, right @ Pieces { partial: false, .. }) if carried.right => {
            let left = vec![None; shape.widths.0];
            right.map_columns(|columns| output(shape, &left, columns))
        }
        (
            Pieces {
                cut,
                variants: left,
                partial: false,
            },
            Pieces {
                cut: other,
                variants: right,
                partial: false,
            },
        ) if cut == other => {
            let mut variants = Vec::new();
            for l in &left {
                variants.extend(right.iter().filter_map(|r| co_located(shape, l, r)));
            }
            variants.truncate(MAX_VARIANTS);
            if variants.is_empty() {
                return Locality::Global;
            }
            Pieces {
                cut,
                variants,
                partial: false,
            }
        }
        _ => Locality::Global,
    }
}

/// The inputs of which every row of a join's result has exactly one row.
///
/// A row of the result belongs to the piece of such a row, and is given there alone. A row that has none would be given in every
/// piece where its own, replicated row is: `Filter SEMI JOIN Source` has a row of Filter and none of Source, so it gives each
/// filter once for each piece with such a source. So a join of rows in pieces with rows that are the same in every piece runs
/// in the pieces only if its result carries the rows in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CarriedSides {
    left: bool,
    right: bool,
}

impl CarriedSides {
    fn by(join_type: JoinType) -> Self {
        let (left, right) = match join_type {
            JoinType::Inner => (true, true),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (true, false)
            }
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                (false, true)
            }
            JoinType::Full => (false, false),
        };
        Self { left, right }
    }
}

/// Whether equal keys of the join are in the same piece, in some way of reading its inputs.
pub(super) fn are_co_located(shape: &JoinShape<'_>, left: &Locality, right: &Locality) -> bool {
    let (
        Locality::Pieces { variants: left, .. },
        Locality::Pieces {
            variants: right, ..
        },
    ) = (left, right)
    else {
        return false;
    };
    let mut ways = left.iter().flat_map(|l| right.iter().map(move |r| (l, r)));
    ways.any(|(l, r)| co_located(shape, l, r).is_some())
}

fn co_located(shape: &JoinShape<'_>, left: &Variant, right: &Variant) -> Option<Variant> {
    let same_piece = |(l, r): &(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)| match (
        origin_of(l, &left.columns),
        origin_of(r, &right.columns),
    ) {
        (Some(l), Some(r)) => {
            l.director == r.director
                && l.unknown.meet(r.unknown)
                && (shape.nulls_equal == NullEquality::NullEqualsNothing || (l.groups && r.groups))
        }
        _ => false,
    };
    if !shape.on.iter().any(same_piece) {
        return None;
    }
    let formulas = [left.formula.clone(), right.formula.after(left.scans.len())];
    Some(Variant {
        scans: left.scans.iter().chain(&right.scans).copied().collect(),
        coverage: coverage(shape.join_type, [0, 1].map(CoverageFormula::Scan))
            .evaluate(&[left.coverage.clone(), right.coverage.clone()]),
        formula: coverage(shape.join_type, formulas),
        columns: output(shape, &left.columns, &right.columns),
    })
}

/// The pieces in which a join has rows: those of a side whose rows it keeps without a match, else where both have some.
fn coverage(join_type: JoinType, [left, right]: [CoverageFormula; 2]) -> CoverageFormula {
    match join_type {
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => {
            CoverageFormula::Intersection(Box::new([left, right]))
        }
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => left,
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => right,
        JoinType::Full => CoverageFormula::Union(Box::new([left, right])),
    }
}

/// The origins of the join's output columns. A side that may be filled up with NULLs no longer has whole groups.
fn output(
    shape: &JoinShape<'_>,
    left: &[Option<KeyOrigin>],
    right: &[Option<KeyOrigin>],
) -> Vec<Option<KeyOrigin>> {
    let side = |columns: &[Option<KeyOrigin>], filled: bool| -> Vec<Option<KeyOrigin>> {
        columns
            .iter()
            .map(|origin| {
                origin.clone().map(|o| KeyOrigin {
                    groups: o.groups && !filled,
                    ..o
                })
            })
            .collect()
    };
    let mut both = match shape.join_type {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => side(left, false),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => side(right, false),
        join_type => {
            let mut both = side(left, matches!(join_type, JoinType::Right | JoinType::Full));
            both.resize(shape.widths.0, None);
            both.extend(side(
                right,
                matches!(join_type, JoinType::Left | JoinType::Full),
            ));
            both
        }
    };
    if let Some(projection) = shape.projection {
        both = projection
            .iter()
            .map(|at| both.get(*at).cloned().flatten())
            .collect();
    }
    both
}

#[cfg(test)]
mod tests {
    use catalog::LoadId;
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_plan::joins::utils::JoinOn;
    use sky::ChunkId;

    use super::*;
    use crate::coverage::{Coverage, SubChunkSet};
    use crate::exec::RowsOf;
    use crate::loaded_table::{Cut, DirectorId};
    use crate::plan::locality::UnknownKeys;

    const CUT: Cut = Cut {
        stripes: 18,
        sub_stripes: 10,
    };

    #[test]
    fn a_join_on_the_key_stays_in_the_piece() {
        let coverage = |join_type| match joined(join_type, origin(1, true), origin(1, false)) {
            Locality::Pieces { variants, .. } => variants[0].coverage.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(coverage(JoinType::Inner), chunks(&[2]));
        assert_eq!(coverage(JoinType::LeftSemi), chunks(&[2]));
        assert_eq!(coverage(JoinType::Left), chunks(&[1, 2]));
        assert_eq!(coverage(JoinType::LeftAnti), chunks(&[1, 2]));
        assert_eq!(coverage(JoinType::Right), chunks(&[2, 3]));
        assert_eq!(coverage(JoinType::Full), chunks(&[1, 2, 3]));
    }

    #[test]
    fn other_directors_other_columns_and_null_traps_do_not() {
        assert!(is_global(joined(
            JoinType::Inner,
            origin(1, true),
            origin(2, true)
        )));
        assert!(is_global(joined(JoinType::Inner, origin(1, true), None)));
        let mut shape = shape(JoinType::LeftAnti);
        shape.null_aware = true;
        assert!(is_global(join_locality(
            &shape,
            side(&[1], origin(1, true)),
            side(&[1], origin(1, true))
        )));
        shape.null_aware = false;
        shape.nulls_equal = NullEquality::NullEqualsNull;
        assert!(is_global(join_locality(
            &shape,
            side(&[1], origin(1, true)),
            side(&[1], origin(1, false))
        )));
    }

    /// A pair whose end the director does not have is placed by its other end: two tables of such pairs, joined on that
    /// key, once lost the joined rows whose two pairs were in different pieces.
    #[test]
    fn keys_that_the_director_does_not_have_must_be_together_to_join() {
        let with = |unknown| origin(1, false).map(|o| KeyOrigin { unknown, ..o });
        use UnknownKeys::{None, OwnKeys, Scattered, Together};
        for (left, right, local) in [
            (None, Scattered, true),
            (Together, None, true),
            (Together, Together, true),
            (Together, Scattered, false),
            (Scattered, Scattered, false),
            // Only pairs that were placed by a child's own keys know that none of these is in two places.
            (OwnKeys, Scattered, true),
            (Scattered, OwnKeys, true),
            (OwnKeys, OwnKeys, false),
            (OwnKeys, Together, false),
        ] {
            let joined = joined(JoinType::Inner, with(left), with(right));
            assert_eq!(!is_global(joined), local, "{left:?} with {right:?}");
        }
    }

    const JOIN_TYPES: [JoinType; 10] = [
        JoinType::Inner,
        JoinType::Left,
        JoinType::Right,
        JoinType::Full,
        JoinType::LeftSemi,
        JoinType::RightSemi,
        JoinType::LeftAnti,
        JoinType::RightAnti,
        JoinType::LeftMark,
        JoinType::RightMark,
    ];

    /// Semi joins that kept a replicated table's rows once ran in the pieces, and gave each row once for each piece.
    ///
    /// Each join type with rows in pieces or replicated on either side is run piece by piece, as its locality says, and as a whole.
    #[test]
    fn joins_in_pieces_give_what_the_whole_join_gives() {
        let replicated: Vec<ModelRow> = [0, 1, 2, 3, 9].map(|key| (key, None)).to_vec();
        // Equal keys are in one piece.
        let pieces: Vec<ModelRow> = [(0, 0), (0, 0), (1, 1), (1, 1), (2, 0), (4, 0), (5, 1)]
            .map(|(key, piece)| (key, Some(piece)))
            .to_vec();
        let others: Vec<ModelRow> = [(0, 0), (1, 1), (1, 1), (5, 1), (6, 0)]
            .map(|(key, piece)| (key, Some(piece)))
            .to_vec();
        let mut in_pieces = Vec::new();
        for join_type in JOIN_TYPES {
            for (left, right) in [
                (&pieces, &others),
                (&pieces, &replicated),
                (&replicated, &pieces),
            ] {
                let locality = |rows: &[ModelRow]| match rows[0].1 {
                    Some(_) => side(&[1], origin(1, true)),
                    None => Locality::Anywhere,
                };
                let found = join_locality(&shape(join_type), locality(left), locality(right));
                if is_global(found) {
                    continue;
                }
                in_pieces.push((join_type, left[0].1.is_some(), right[0].1.is_some()));
                let whole = model_join(join_type, left, right);
                let mut by_piece = Vec::new();
                for piece in [0, 1] {
                    let there = |rows: &[ModelRow]| -> Vec<ModelRow> {
                        let seen = |row: &&ModelRow| row.1.is_none_or(|at| at == piece);
                        rows.iter().filter(seen).copied().collect()
                    };
                    by_piece.extend(model_join(join_type, &there(left), &there(right)));
                }
                by_piece.sort_unstable();
                assert_eq!(by_piece, whole, "{join_type}");
            }
        }
        // None of those that can run in pieces is done above them: all ten on the key, five with either side replicated.
        assert_eq!(in_pieces.len(), 10 + 5 + 5, "{in_pieces:?}");
    }

    /// A key and, of a row that is not replicated, its piece.
    type ModelRow = (i32, Option<i32>);

    /// The keys of the pairs, kept rows and marks of a join, in order.
    fn model_join(
        join_type: JoinType,
        left: &[ModelRow],
        right: &[ModelRow],
    ) -> Vec<(Option<i32>, Option<i32>, Option<bool>)> {
        let has = |rows: &[ModelRow], key| rows.iter().any(|row| row.0 == key);
        let pairs = left.iter().flat_map(|l| {
            let matches = right.iter().filter(move |r| r.0 == l.0);
            matches.map(move |r| (Some(l.0), Some(r.0), None))
        });
        let lefts = |matched| {
            let rows = left.iter().filter(move |l| has(right, l.0) == matched);
            rows.map(|l| (Some(l.0), None, None))
        };
        let rights = |matched| {
            let rows = right.iter().filter(move |r| has(left, r.0) == matched);
            rows.map(|r| (None, Some(r.0), None))
        };
        let mut rows: Vec<_> = match join_type {
            JoinType::Inner => pairs.collect(),
            JoinType::Left => pairs.chain(lefts(false)).collect(),
            JoinType::Right => pairs.chain(rights(false)).collect(),
            JoinType::Full => pairs.chain(lefts(false)).chain(rights(false)).collect(),
            JoinType::LeftSemi => lefts(true).collect(),
            JoinType::RightSemi => rights(true).collect(),
            JoinType::LeftAnti => lefts(false).collect(),
            JoinType::RightAnti => rights(false).collect(),
            JoinType::LeftMark => (left.iter())
                .map(|l| (Some(l.0), None, Some(has(right, l.0))))
                .collect(),
            JoinType::RightMark => (right.iter())
                .map(|r| (None, Some(r.0), Some(has(left, r.0))))
                .collect(),
        };
        rows.sort_unstable();
        rows
    }

    #[test]
    fn groups_on_a_side_filled_with_nulls_are_not_whole() {
        let Locality::Pieces { variants, .. } =
            joined(JoinType::Left, origin(1, true), origin(1, true))
        else {
            panic!("global");
        };
        let groups: Vec<bool> = variants[0]
            .columns
            .iter()
            .map(|c| c.as_ref().unwrap().groups)
            .collect();
        assert_eq!(groups, [true, false]);
    }

    fn joined(join_type: JoinType, left: Option<KeyOrigin>, right: Option<KeyOrigin>) -> Locality {
        join_locality(&shape(join_type), side(&[1, 2], left), side(&[2, 3], right))
    }

    fn is_global(locality: Locality) -> bool {
        matches!(locality, Locality::Global)
    }

    fn origin(director: i64, groups: bool) -> Option<KeyOrigin> {
        let director = DirectorId {
            table: "object".into(),
            placement: LoadId(director),
        };
        let unknown = UnknownKeys::None;
        Some(KeyOrigin {
            director,
            unknown,
            groups,
        })
    }

    fn chunks(ids: &[i32]) -> Coverage {
        Coverage::of(ids.iter().map(|id| (ChunkId(*id), SubChunkSet::All)))
    }

    fn side(ids: &[i32], origin: Option<KeyOrigin>) -> Locality {
        let variant = Variant {
            scans: vec![RowsOf::Own],
            coverage: chunks(ids),
            formula: CoverageFormula::Scan(0),
            columns: vec![origin],
        };
        Locality::Pieces {
            cut: CUT,
            variants: vec![variant],
            partial: false,
        }
    }

    fn shape(join_type: JoinType) -> JoinShape<'static> {
        static ON: std::sync::LazyLock<JoinOn> = std::sync::LazyLock::new(|| {
            let key = || Arc::new(Column::new("id", 0)) as Arc<dyn PhysicalExpr>;
            vec![(key(), key())]
        });
        JoinShape {
            join_type,
            on: &ON,
            nulls_equal: NullEquality::NullEqualsNothing,
            null_aware: false,
            widths: (1, 1),
            projection: None,
        }
    }
}
