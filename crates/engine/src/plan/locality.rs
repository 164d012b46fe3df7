//! Whether a subtree of a plan can run piece by piece.
//!
//! What is said here of pieces is known of sub-chunks: rows with the same key of a director are in one sub-chunk of one chunk. Each
//! sub-chunk is in one piece with all its rows, and a piece is nothing but a union of sub-chunks, of one chunk or of several. So rows
//! that are in one sub-chunk are in one piece, however pieces are cut or joined, and that is all that is concluded. Nothing may
//! rest on rows of two chunks being in two pieces.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use crate::coverage::Coverage;
use crate::exec::{RowsOf, TableScanExec};
use crate::loaded_table::{Cut, DirectorId, LoadedTable, texts_of};
use catalog::TableKind;

/// Where rows are whose key the director does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownKeys {
    /// There are none.
    None,
    /// All rows of one such key, of all children of the director, are in one piece.
    Together,
    /// Anywhere: a pair of a match table is then placed by its other end.
    Scattered,
    /// The column is a child's own key, and the child has all there are. That no key is in two places is known to the match tables
    /// that were placed by them, and to nobody else.
    OwnKeys,
}

impl UnknownKeys {
    /// Whether rows of two tables with the same key are in the same piece, whatever the key.
    pub(super) fn meet(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::None, _)
                | (_, Self::None)
                | (Self::Together, Self::Together)
                | (Self::OwnKeys, Self::Scattered)
                | (Self::Scattered, Self::OwnKeys)
        )
    }
}

/// What is known of where a column's values are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyOrigin {
    /// The director whose keys the column holds: rows with the same key of it, from whichever table, are in the same piece.
    pub director: DirectorId,
    /// Where rows are whose key it does not have.
    pub unknown: UnknownKeys,
    /// Whether all rows that are equal in this column, NULLs among them, are in one piece, so that a group is whole there.
    pub groups: bool,
}

/// One way to run a subtree piece by piece.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    /// Which rows each table scan below gives, from left to right.
    pub scans: Vec<RowsOf>,
    /// The pieces in which the subtree has rows.
    pub coverage: Coverage,
    /// How these follow from where each scan's rows are.
    pub formula: CoverageFormula,
    /// For each output column, whose key it holds.
    pub columns: Vec<Option<KeyOrigin>>,
}

/// How the pieces in which a subtree has rows follow from those in which its scans have some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CoverageFormula {
    /// Those of one of the scans, by its number from left to right.
    Scan(usize),
    /// Those that both have.
    Intersection(Box<[Self; 2]>),
    /// Those that either has.
    Union(Box<[Self; 2]>),
}

impl CoverageFormula {
    /// The pieces, given those of each scan.
    pub(super) fn evaluate(&self, scans: &[Coverage]) -> Coverage {
        match self {
            Self::Scan(at) => scans.get(*at).cloned().unwrap_or(Coverage::Everything),
            Self::Intersection(sides) => {
                let [left, right] = sides.each_ref().map(|side| side.evaluate(scans));
                left.intersection(&right)
            }
            Self::Union(sides) => {
                let [left, right] = sides.each_ref().map(|side| side.evaluate(scans));
                left.union(&right)
            }
        }
    }

    /// The same with so many scans before its own.
    pub(super) fn after(&self, scans: usize) -> Self {
        let shifted = |sides: &[Self; 2]| Box::new(sides.each_ref().map(|side| side.after(scans)));
        match self {
            Self::Scan(at) => Self::Scan(at + scans),
            Self::Intersection(sides) => Self::Intersection(shifted(sides)),
            Self::Union(sides) => Self::Union(shifted(sides)),
        }
    }
}

/// Where a subtree can run.
#[derive(Debug, Clone)]
pub(super) enum Locality {
    /// Nowhere but above chunk phases.
    Global,
    /// In any piece with the same result: it reads nothing but replicated tables.
    Anywhere,
    /// Piece by piece, in one of these ways (at least one). All rows of all pieces together are the subtree's rows, once each.
    Pieces {
        /// How the pieces are cut.
        cut: Cut,
        /// The ways.
        variants: Vec<Variant>,
        /// Whether the output is partial aggregates, which must be merged above the phase.
        partial: bool,
    },
}

/// More ways than this of running one subtree are not followed up: each match table doubles them.
pub(super) const MAX_VARIANTS: usize = 8;

impl Locality {
    /// The locality of a single table.
    pub(super) fn of_scan(scan: &TableScanExec) -> Self {
        let table = &scan.table;
        if table.spec().kind == TableKind::Replicated {
            return Self::Anywhere;
        }
        let homes: &[RowsOf] = match table.spec().kind {
            // A pair has one chunk number, however it is read: that of its left home.
            TableKind::Match if scan.chunk_number_at().is_some() => &[RowsOf::LeftHome],
            TableKind::Match => &[RowsOf::LeftHome, RowsOf::RightHome],
            _ => &[RowsOf::Own],
        };
        let variants = homes
            .iter()
            .zip(&scan.coverage)
            .enumerate()
            .map(|(home, (rows, coverage))| Variant {
                scans: vec![*rows],
                coverage: coverage.clone(),
                formula: CoverageFormula::Scan(0),
                columns: key_columns(table, scan.projection(), home),
            })
            .collect();
        Self::Pieces {
            cut: table.cut(),
            variants,
            partial: false,
        }
    }

    /// The same ways with the output columns taken through `map`.
    pub(super) fn map_columns(
        self,
        map: impl Fn(&[Option<KeyOrigin>]) -> Vec<Option<KeyOrigin>>,
    ) -> Self {
        match self {
            Self::Pieces {
                cut,
                mut variants,
                partial,
            } => {
                for variant in &mut variants {
                    variant.columns = map(&variant.columns);
                }
                Self::Pieces {
                    cut,
                    variants,
                    partial,
                }
            }
            other => other,
        }
    }

    /// Only the ways that `keep`; `Global` if none is left.
    pub(super) fn retain(self, keep: impl Fn(&Variant) -> bool) -> Self {
        match self {
            Self::Pieces {
                cut,
                mut variants,
                partial,
            } => {
                variants.retain(keep);
                if variants.is_empty() {
                    return Self::Global;
                }
                Self::Pieces {
                    cut,
                    variants,
                    partial,
                }
            }
            other => other,
        }
    }
}

fn key_columns(table: &LoadedTable, projection: &[usize], home: usize) -> Vec<Option<KeyOrigin>> {
    let spec = table.spec();
    let mut origins = vec![None; table.stored.schema.fields().len()];
    for (number, (name, director)) in table.director_keys().into_iter().enumerate() {
        if number != home {
            continue;
        }
        let (Some(director), Ok(at)) = (director, table.stored.schema.index_of(&name)) else {
            continue;
        };
        // NULL keys of a child are all over the sky; so are pairs of which the director does not know one end.
        let (groups, unknown) = match spec.kind {
            TableKind::Director => (true, UnknownKeys::None),
            TableKind::Child => {
                let unknown = match table.table.orphan_rows() {
                    0 => UnknownKeys::None,
                    _ => UnknownKeys::Together,
                };
                (table.table.null_keys() == 0, unknown)
            }
            _ => (false, UnknownKeys::Scattered),
        };
        let origin = KeyOrigin {
            director,
            unknown,
            groups,
        };
        // Rows with the same text have the same key, which is the text's number, and those without a text have none.
        let texts = texts_of(spec, &name);
        if let Some(Ok(texts)) = texts.map(|texts| table.stored.schema.index_of(&texts)) {
            origins[texts] = Some(origin.clone());
        }
        origins[at] = Some(origin);
    }
    if let Some((name, director)) = table.own_key()
        && let Ok(at) = table.stored.schema.index_of(&name)
    {
        let unknown = UnknownKeys::OwnKeys;
        let groups = false;
        let own = KeyOrigin {
            director,
            unknown,
            groups,
        };
        origins[at].get_or_insert(own);
    }
    // The chunk's number is no key, and a chunk may be cut into several pieces: groups by it are not known to be whole in one.
    let origin = |at: &usize| origins.get(*at).cloned().flatten();
    projection.iter().map(origin).collect()
}

/// The output columns of expressions over an input.
pub(super) fn through<'a>(
    exprs: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
    columns: &[Option<KeyOrigin>],
) -> Vec<Option<KeyOrigin>> {
    exprs.map(|expr| origin_of(expr, columns)).collect()
}

/// The origin of an expression: that of a column it hands through as it is.
pub(super) fn origin_of(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[Option<KeyOrigin>],
) -> Option<KeyOrigin> {
    let column = expr.downcast_ref::<Column>()?;
    columns.get(column.index())?.clone()
}

/// Whether some expression holds a key by which whole groups are in one piece.
pub(super) fn groups_whole<'a>(
    mut exprs: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
    columns: &[Option<KeyOrigin>],
) -> bool {
    exprs.any(|expr| origin_of(expr, columns).is_some_and(|origin| origin.groups))
}
