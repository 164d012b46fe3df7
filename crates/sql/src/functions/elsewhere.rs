//! Functions that other databases of astronomy, or other languages, have under another name.

/// Names there in lower case, and what does the same in MySQL's dialect here.
const ELSEWHERE: [(&str, &str); 18] = [
    ("ang_dist", "scisql_angSep"),
    ("angdist", "scisql_angSep"),
    ("fdistanceeq", "scisql_angSep"),
    ("fdistancearcmineq", "scisql_angSep"),
    ("haversine", "scisql_angSep"),
    ("q3c_dist", "scisql_angSep"),
    ("q3c_join", "scisql_angSep"),
    ("st_distance_sphere", "scisql_angSep"),
    ("cone", "scisql_s2PtInCircle"),
    ("cone_search", "scisql_s2PtInCircle"),
    ("q3c_radial_query", "scisql_s2PtInCircle"),
    ("q3c_poly_query", "scisql_s2PtInCPoly"),
    ("charindex", "LOCATE"),
    ("dateadd", "DATE_ADD"),
    ("getdate", "NOW"),
    ("iif", "IF"),
    ("len", "CHAR_LENGTH"),
    ("listagg", "GROUP_CONCAT"),
];

/// What does here what a function of another database does; `None` where that is not known, or has the same name.
pub(crate) fn same_as(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let known = ELSEWHERE.iter().find(|(there, _)| *there == name)?;
    Some(known.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, functions};

    #[test]
    fn what_does_the_same_is_documented_and_the_other_name_is_none_of_ours() {
        let documented: Vec<String> = functions::documented(Dialect::MySql)
            .into_iter()
            .map(str::to_ascii_lowercase)
            .collect();
        for (there, here) in ELSEWHERE {
            assert!(documented.contains(&here.to_ascii_lowercase()), "{here}");
            assert!(!documented.iter().any(|name| name == there), "{there}");
        }
    }
}
