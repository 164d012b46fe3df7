//! Headers of tables: what is read of them, and what is not possible.

use super::column::{Kind, Scaling};
use super::header::{self, Passing};
use super::*;

/// A file with a table of these cards, and no rows.
fn file(cards: &[&str]) -> Vec<u8> {
    let block = |cards: &[&str]| {
        let mut text: String = cards.iter().map(|card| format!("{card:<80}")).collect();
        text.push_str(&format!("{:<80}", "END"));
        text.extend(std::iter::repeat_n(
            ' ',
            text.len().next_multiple_of(2880) - text.len(),
        ));
        text.into_bytes()
    };
    let primary = [
        "SIMPLE  =                    T",
        "BITPIX  =                    8",
        "NAXIS   =                    0",
    ];
    [block(&primary), block(cards)].concat()
}

fn find(cards: &[&str]) -> Result<Table, String> {
    let bytes = file(cards);
    let path = Path::new("t.fits");
    let mut meter = DecodeBudget::unlimited().meter(path);
    let found = header::find(&mut Passing(&mut bytes.as_slice()), path, None, &mut meter);
    found.map_err(|error| error.to_string())
}

const BEGIN: [&str; 7] = [
    "XTENSION= 'BINTABLE'",
    "BITPIX  =                    8",
    "NAXIS   =                    2",
    "NAXIS2  =                    0",
    "PCOUNT  =                    0",
    "GCOUNT  =                    1",
    "THEAP   =                    0",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    BEGIN.into_iter().chain(more.iter().copied()).collect()
}

#[test]
fn columns_are_described() {
    let table = find(&with(&[
        "NAXIS1  =                   30",
        "TFIELDS =                    5",
        "TTYPE1  = 'id      '           / the key",
        "TFORM1  = '1K      '",
        "TZERO1  =  9223372036854775808",
        "TFORM2  = 'I       '",
        "TSCAL2  =                  0.5",
        "TNULL2  =                  -99",
        "TFORM3  = '12A     '",
        "TDIM3   = '(4,3)   '",
        "TFORM4  = '0J      '",
        "TTYPE5  = 'light   '",
        "TFORM5  = '1PE(7)  '",
        "TUNIT5  = 'mag     '",
    ]))
    .unwrap();
    let names: Vec<&str> = table.columns.iter().map(|it| it.name.as_str()).collect();
    // The fourth has no place in a row.
    assert_eq!(names, ["id", "col2", "col3", "light"]);
    let [id, second, third, light] = &table.columns[..] else {
        panic!("{names:?}");
    };
    assert_eq!(
        (id.kind, id.scaling, id.offset),
        (Kind::Long, Scaling::OtherSign, 0)
    );
    assert_eq!((second.null, second.offset), (Some(-99), 8));
    assert_eq!(
        second.scaling,
        Scaling::Linear {
            zero: 0.0,
            scale: 0.5
        }
    );
    assert_eq!((third.text_width, third.bytes), (Some(4), 12));
    assert!(light.is_in_heap() && light.described.unit == "mag");
    assert_eq!((table.row_bytes, light.offset), (30, 22));
}

#[test]
fn what_cannot_be_is_told() {
    for (more, sentence) in [
        (
            &[
                "NAXIS1  =                    4",
                "TFIELDS =                    1",
            ][..],
            "TFORM1",
        ),
        (
            &[
                "NAXIS1  =                    4",
                "TFIELDS =                    1",
                "TFORM1  = '2J      '",
            ],
            "take 8 bytes",
        ),
        (
            &[
                "NAXIS1  =                    4",
                "TFIELDS =                    1",
                "TFORM1  = '2PJ     '",
            ],
            "no form",
        ),
        (
            &[
                "NAXIS1  =                    4",
                "TFIELDS =                    1",
                "TFORM1  = '99999999999999999999J'",
            ],
            "no form",
        ),
        // The library panicked.
        (
            &[
                "NAXIS1  =                    4",
                "TFIELDS =                    1",
                "TFORM1  = '(4)     '",
            ],
            "no form",
        ),
        (
            &[
                "NAXIS1  =                   -4",
                "TFIELDS =                    1",
            ],
            "no NAXIS1",
        ),
        (
            &[
                "NAXIS1  =                    0",
                "TFIELDS =                    0",
            ],
            "no columns",
        ),
    ] {
        let error = find(&with(more)).unwrap_err();
        assert!(error.contains(sentence), "{error}");
    }
    let error = find(&[
        "XTENSION= 'IMAGE   '",
        "BITPIX  =                    8",
        "NAXIS   =                    0",
        "EXTNAME = 'SKY     '",
    ]);
    assert!(error.unwrap_err().contains("1 (SKY, image)"));
}

/// What of two columns of one name a query meant nobody could know, and the sentence did not say which columns they are.
#[test]
fn two_columns_of_one_name_are_told() {
    let cards = with(&[
        "NAXIS1  =                   12",
        "TFIELDS =                    3",
        "TTYPE1  = 'ra      '",
        "TFORM1  = '1J      '",
        "TTYPE2  = 'dec     '",
        "TFORM2  = '1J      '",
        "TTYPE3  = 'RA      '",
        "TFORM3  = '1J      '",
    ]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.fits");
    std::fs::write(&path, file(&cards)).unwrap();
    let error = crate::RowFile::open(&path, crate::FileFormat::Fits).unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("its columns 1 and 3 are both called \"RA\""),
        "{told}"
    );
}

/// The length of the heap was computed of a negative number where a file ends before it begins.
#[test]
fn a_file_may_end_before_its_heap() {
    let mut cards: Vec<&str> = BEGIN
        .into_iter()
        .filter(|it| !it.starts_with("THEAP"))
        .collect();
    cards.retain(|card| !card.starts_with("NAXIS2") && !card.starts_with("PCOUNT"));
    cards.extend([
        "NAXIS1  =                    8",
        "NAXIS2  =                    1",
        "PCOUNT  =                 9000",
        "THEAP   =                 5000",
        "TFIELDS =                    1",
        "TTYPE1  = 'a       '",
        "TFORM1  = '1PJ(1)  '",
    ]);
    let mut bytes = file(&cards);
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.fits");
    std::fs::write(&path, bytes).unwrap();
    let file = crate::RowFile::open(&path, crate::FileFormat::Fits).unwrap();
    let mut rows = file.rows(&[0]).unwrap();
    let told = rows.next().unwrap().unwrap_err().to_string();
    assert!(told.contains("ends behind the file's data"), "{told}");
}

/// Bits were T and F, where those of a VOTable are numbers, and floats no geometry, where doubles are.
#[test]
fn bits_are_numbers_and_floats_may_be_shapes() {
    let mut cards = BEGIN.to_vec();
    cards.retain(|card| !card.starts_with("NAXIS2") && !card.starts_with("THEAP"));
    cards.extend([
        "NAXIS1  =                   10",
        "NAXIS2  =                    1",
        "TFIELDS =                    2",
        "TTYPE1  = 'bits    '",
        "TFORM1  = '10X     '",
        "TTYPE2  = 'p       '",
        "TFORM2  = '2E      '",
        "TXTYP2  = 'point   '",
    ]);
    let mut bytes = file(&cards);
    bytes.extend([0b1011_0000, 0b0100_0000]);
    bytes.extend([1.5_f32, -2.25].map(f32::to_be_bytes).concat());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.fits");
    std::fs::write(&path, bytes).unwrap();
    let file = crate::RowFile::open(&path, crate::FileFormat::Fits).unwrap();
    assert_eq!([0, 1].map(|at| file.shape(at)), [None, Some("point")]);
    let rows = file.rows(&[0, 1]).unwrap().next().unwrap().unwrap();
    let texts = [0, 1].map(|at| {
        let column = rows.column(at);
        arrow::util::display::array_value_to_string(column, 0).unwrap()
    });
    assert_eq!(texts, ["1 0 1 1 0 0 0 0 0 1", "1.5 -2.25"]);
}
