//! Which joins can run piece by piece.

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::JoinOnRef;

use super::locality::{KeyOrigin, Locality, MAX_VARIANTS, Variant, origin_of};
use crate::coverage::Coverage;

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
    match (left, right) {
        (Locality::Anywhere, Locality::Anywhere) => Locality::Anywhere,
        (
            Locality::Pieces {
                database,
                variants,
                partial: false,
            },
            Locality::Anywhere,
        ) if !keeps_right(shape.join_type) && !shape.null_aware => {
            let right = vec![None; shape.widths.1];
            let variants = variants.into_iter().map(|v| Variant {
                columns: output(shape, &v.columns, &right),
                ..v
            });
            Locality::Pieces {
                database,
                variants: variants.collect(),
                partial: false,
            }
        }
        (
            Locality::Anywhere,
            Locality::Pieces {
                database,
                variants,
                partial: false,
            },
        ) if !keeps_left(shape.join_type) && !shape.null_aware => {
            let left = vec![None; shape.widths.0];
            let variants = variants.into_iter().map(|v| Variant {
                columns: output(shape, &left, &v.columns),
                ..v
            });
            Locality::Pieces {
                database,
                variants: variants.collect(),
                partial: false,
            }
        }
        (
            Locality::Pieces {
                database,
                variants: left,
                partial: false,
            },
            Locality::Pieces {
                database: other,
                variants: right,
                partial: false,
            },
        ) if database == other && !shape.null_aware => {
            let mut variants = Vec::new();
            for l in &left {
                variants.extend(right.iter().filter_map(|r| co_located(shape, l, r)));
            }
            variants.truncate(MAX_VARIANTS);
            if variants.is_empty() {
                return Locality::Global;
            }
            Locality::Pieces {
                database,
                variants,
                partial: false,
            }
        }
        _ => Locality::Global,
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
    Some(Variant {
        scans: left.scans.iter().chain(&right.scans).copied().collect(),
        coverage: coverage(shape.join_type, &left.coverage, &right.coverage),
        columns: output(shape, &left.columns, &right.columns),
    })
}

/// The pieces in which a join has rows: those of the side that it keeps, or where both have some.
fn coverage(join_type: JoinType, left: &Coverage, right: &Coverage) -> Coverage {
    match (keeps_left(join_type), keeps_right(join_type)) {
        (true, true) => left.union(right),
        (true, false) => left.clone(),
        (false, true) => right.clone(),
        (false, false) => left.intersection(right),
    }
}

/// Whether a row of the left side without a match is (or decides) a row of the result.
fn keeps_left(join_type: JoinType) -> bool {
    matches!(
        join_type,
        JoinType::Left | JoinType::Full | JoinType::LeftAnti | JoinType::LeftMark
    )
}

fn keeps_right(join_type: JoinType) -> bool {
    matches!(
        join_type,
        JoinType::Right | JoinType::Full | JoinType::RightAnti | JoinType::RightMark
    )
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
    use crate::coverage::SubChunkSet;
    use crate::exec::RowsOf;
    use crate::loaded_table::DirectorId;
    use crate::plan::locality::UnknownKeys;

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
        use UnknownKeys::{None, Scattered, Together};
        for (left, right, local) in [
            (None, Scattered, true),
            (Together, None, true),
            (Together, Together, true),
            (Together, Scattered, false),
            (Scattered, Scattered, false),
        ] {
            let joined = joined(JoinType::Inner, with(left), with(right));
            assert_eq!(!is_global(joined), local, "{left:?} with {right:?}");
        }
    }

    #[test]
    fn a_replicated_table_joins_anywhere_unless_its_rows_are_kept() {
        let with_replicated = |join_type| {
            join_locality(
                &shape(join_type),
                side(&[1], origin(1, true)),
                Locality::Anywhere,
            )
        };
        for join_type in [
            JoinType::Inner,
            JoinType::Left,
            JoinType::LeftSemi,
            JoinType::LeftAnti,
        ] {
            assert!(!is_global(with_replicated(join_type)), "{join_type}");
        }
        for join_type in [JoinType::Right, JoinType::Full, JoinType::RightAnti] {
            assert!(is_global(with_replicated(join_type)), "{join_type}");
        }
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
            database: 1,
            table: "object".into(),
            load: LoadId(director),
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
            columns: vec![origin],
        };
        Locality::Pieces {
            database: 1,
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
