//! Files as people have them, of every format.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray,
};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use meridian_ingest::{FileFormat, IngestError};
use parquet::basic::Compression as Codec;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::measured::{read, read_own};
use crate::written::{binary, fits, gzip, parquet, repeated, table, zstd};

/// A file as people have it: a name, how it is written, its bytes, and whether it is taken of clients too.
pub struct Usual {
    pub name: &'static str,
    pub format: FileFormat,
    pub bytes: Vec<u8>,
    of_clients: bool,
}

impl Usual {
    fn new(name: &'static str, format: FileFormat, bytes: Vec<u8>) -> Self {
        Self {
            name,
            format,
            bytes,
            of_clients: true,
        }
    }

    /// One that is read of the operator's own disk alone.
    fn own(name: &'static str, format: FileFormat, bytes: Vec<u8>) -> Self {
        Self {
            of_clients: false,
            ..Self::new(name, format, bytes)
        }
    }

    /// What reading it comes to.
    pub fn read(&self, path: &Path) -> Result<(usize, usize), IngestError> {
        match self.of_clients {
            true => read(path, self.format),
            false => read_own(path, self.format),
        }
    }
}

/// Files as people have them, of every format.
pub fn usual() -> Vec<Usual> {
    [
        usual_parquet(),
        usual_arrow(),
        usual_text(),
        usual_votable(),
        usual_fits(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Some columns, NULLs among their values.
fn usual_columns() -> Vec<(&'static str, ArrayRef)> {
    let ra = (0..500).map(|it| Some(f64::from(it) / 2.0));
    let name = (0..500).map(|it| format!("s{}", it % 7));
    let count = (0..500).map(|it| (it % 5 > 0).then_some(it << 40));
    let flag = (0..500).map(|it| (it % 3 > 0).then_some(it % 2 == 0));
    vec![
        ("ra", Arc::new(Float64Array::from_iter(ra))),
        ("name", Arc::new(StringArray::from_iter_values(name))),
        ("kind", repeated("long enough for a view", 500)),
        ("n", Arc::new(Int64Array::from_iter(count))),
        ("ok", Arc::new(BooleanArray::from_iter(flag))),
    ]
}

fn usual_parquet() -> Vec<Usual> {
    let with = |codec| {
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_max_row_group_row_count(Some(200));
        parquet(usual_columns(), properties.build())
    };
    let gzip = Codec::GZIP(parquet::basic::GzipLevel::default());
    // As catalogues in the Virtual Observatory have them.
    let votable = "<VOTABLE><RESOURCE><TABLE><FIELD name=\"ra\" datatype=\"double\" unit=\"deg\" ucd=\"pos.eq.ra\">\
         <DESCRIPTION>right &amp; left</DESCRIPTION></FIELD></TABLE></RESOURCE></VOTABLE>";
    let described = [KeyValue::new(
        "IVOA.VOTable-Parquet.content".to_owned(),
        votable.to_owned(),
    )];
    let described = WriterProperties::builder().set_key_value_metadata(Some(described.to_vec()));
    let described = parquet(usual_columns(), described.build());
    let new = |name, bytes| Usual::new(name, FileFormat::Parquet, bytes);
    vec![
        new("plain.parquet", with(Codec::UNCOMPRESSED)),
        new("zstd.parquet", with(zstd())),
        new("snappy.parquet", with(Codec::SNAPPY)),
        new("gzip.parquet", with(gzip)),
        new("described.parquet", described.clone()),
        Usual::own("own.parquet", FileFormat::Parquet, described),
    ]
}

/// Files and streams of Arrow, compressed and not.
pub fn usual_arrow() -> Vec<Usual> {
    let mut columns = usual_columns();
    let views =
        StringViewArray::from_iter_values((0..500).map(|it| format!("a text as a view {it}")));
    columns.push(("view", Arc::new(views)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let parts = [batch.slice(0, 200), batch.slice(200, 300)];
    let options = |packed| {
        let options = IpcWriteOptions::default();
        options.try_with_compression(packed).unwrap()
    };
    let file = |packed| {
        let (mut bytes, schema) = (Vec::new(), batch.schema());
        let mut writer =
            FileWriter::try_new_with_options(&mut bytes, &schema, options(packed)).unwrap();
        parts.iter().for_each(|part| writer.write(part).unwrap());
        writer.finish().unwrap();
        drop(writer);
        bytes
    };
    let stream = |packed| {
        let (mut bytes, schema) = (Vec::new(), batch.schema());
        let mut writer =
            StreamWriter::try_new_with_options(&mut bytes, &schema, options(packed)).unwrap();
        parts.iter().for_each(|part| writer.write(part).unwrap());
        writer.finish().unwrap();
        drop(writer);
        bytes
    };
    let own = |name, bytes| Usual::own(name, FileFormat::Arrow, bytes);
    vec![
        own("plain.arrow", file(None)),
        own("zstd.arrow", file(Some(CompressionType::ZSTD))),
        own("plain.arrows", stream(None)),
        own("lz4.arrows", stream(Some(CompressionType::LZ4_FRAME))),
    ]
}

fn usual_text() -> Vec<Usual> {
    let csv: String = (0..500)
        .map(|it| format!("{it},{},\"n{it}\"\n", f64::from(it) / 3.0))
        .collect();
    let csv = format!("id,ra,name\n{csv}");
    let ecsv = "# %ECSV 1.0\n# ---\n# datatype:\n# - {name: id, datatype: int64}\n# - {name: ra, unit: deg, datatype: float64, description: where}\n\
         # - {name: name, datatype: string}\n# meta: !!omap\n# - {a: b}\n# schema: astropy-2.0\n";
    let times: String = (0..300)
        .map(|it| {
            let day = it % 28 + 1;
            format!(
                "2026-01-{day:02}T00:00:{:02}.5|{}|{}|NULL\r\n",
                it % 60,
                it % 2 == 0,
                -f64::from(it) * 1e-7
            )
        })
        .collect();
    let new = |name, bytes| Usual::new(name, FileFormat::Text, bytes);
    vec![
        new("plain.tsv", csv.replace(',', "\t").into_bytes()),
        new("plain.csv.gz", gzip([csv.clone().into_bytes()])),
        new("times.txt", format!("t|ok|x|no\r\n{times}").into_bytes()),
        new(
            "plain.ecsv",
            format!("{ecsv}{}", csv.replace(',', " ")).into_bytes(),
        ),
        new("plain.csv", csv.clone().into_bytes()),
        Usual::own("own.csv", FileFormat::Text, csv.into_bytes()),
    ]
}

fn usual_votable() -> Vec<Usual> {
    let fields = "<FIELD name=\"id\" datatype=\"int\"/><FIELD name=\"t\" datatype=\"char\" arraysize=\"*\"/><FIELD name=\"d\" datatype=\"double\" arraysize=\"2\"/>";
    let row = |number: u8| {
        [
            &[0, 0, 0, number, 0, 0, 0, 2, b'a', b'b'][..],
            &1.5_f64.to_be_bytes(),
            &(-2.0_f64).to_be_bytes(),
        ]
        .concat()
    };
    let rows: Vec<u8> = (0..100).flat_map(row).collect();
    let flagged: Vec<u8> = (0..100)
        .flat_map(|it| [vec![0x40], row(it)].concat())
        .collect();
    let cells: String = (0..100)
        .map(|it| format!("<TR><TD>{it}</TD><TD>a &amp; b</TD><TD>1 2</TD></TR>"))
        .collect();
    let more = "<FIELD name=\"u\" datatype=\"unicodeChar\" arraysize=\"3\" ucd=\"meta.id\"><DESCRIPTION>a &lt; b</DESCRIPTION><VALUES null=\"-1\"/></FIELD>\
         <FIELD name=\"bits\" datatype=\"bit\" arraysize=\"11\"/><FIELD name=\"c\" datatype=\"floatComplex\" arraysize=\"*\"/><FIELD name=\"b\" datatype=\"boolean\"/>\
         <FIELD name=\"s\" datatype=\"short\"><VALUES null=\"7\"/></FIELD><FIELD name=\"f\" datatype=\"float\" arraysize=\"2x*\"/>";
    let wide = |number: u8| {
        let mut row = vec![0, b'x', 0, b'y', 0, number, 0xff, 0x80, 0, 0, 0, 1];
        row.extend(1.0_f32.to_be_bytes());
        row.extend(2.0_f32.to_be_bytes());
        row.extend([b'T', 0, 7, 0, 0, 0, 2]);
        row.extend(3.0_f32.to_be_bytes());
        row.extend(4.0_f32.to_be_bytes());
        row
    };
    let wide: Vec<u8> = (0..100).flat_map(wide).collect();
    let cells = table(fields, &format!("<TABLEDATA>{cells}</TABLEDATA>"));
    // In two bytes for each character, with times, points and bits.
    let typed = "<FIELD name=\"seen\" datatype=\"char\" arraysize=\"*\" xtype=\"timestamp\"/><FIELD name=\"p\" datatype=\"double\" arraysize=\"2\" xtype=\"point\"/>\
         <FIELD name=\"bits\" datatype=\"bit\" arraysize=\"*\"/><FIELD name=\"bit\" datatype=\"bit\"/>";
    let typed_cells: String = (0..100)
        .map(|it| format!("<TR><TD>2026-11-20T08:00:{:02}.5</TD><TD>1.5 {it}</TD><TD>101</TD><TD>1</TD></TR>\n", it % 60))
        .collect();
    let typed = table(typed, &format!("<TABLEDATA>{typed_cells}</TABLEDATA>"));
    let typed = String::from_utf8(typed).unwrap();
    let wide_characters = format!("\u{feff}<?xml version=\"1.0\" encoding=\"UTF-16\"?>{typed}");
    let wide_characters: Vec<u8> = wide_characters
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let latin1 = format!("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>{typed}");
    let new = |name, bytes| Usual::new(name, FileFormat::VoTable, bytes);
    vec![
        new("cells.vot", cells.clone()),
        new("binary.vot", table(fields, &binary("BINARY", &rows))),
        new("binary2.vot", table(fields, &binary("BINARY2", &flagged))),
        new("wide.vot", table(more, &binary("BINARY", &wide))),
        new("utf16.vot", wide_characters),
        new("latin1.vot", latin1.into_bytes()),
        Usual::own("cells.vot.gz", FileFormat::VoTable, gzip([cells])),
        Usual::own(
            "own.vot",
            FileFormat::VoTable,
            table(fields, &binary("BINARY2", &flagged)),
        ),
    ]
}

fn usual_fits() -> Vec<Usual> {
    vec![
        Usual::new("plain.fits", FileFormat::Fits, fits(true)),
        Usual::own("own.fits", FileFormat::Fits, fits(true)),
        Usual::own("own.fits.gz", FileFormat::Fits, gzip([fits(false)])),
    ]
}
