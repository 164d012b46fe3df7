//! Names are folded alike by the catalog, which finds tables by them, and in statements.

#[test]
fn statements_and_the_catalog_fold_every_character_alike() {
    for character in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
        let name = character.to_string();
        assert_eq!(sql::fold_word(&name), catalog::fold_name(&name), "{name}");
    }
}
