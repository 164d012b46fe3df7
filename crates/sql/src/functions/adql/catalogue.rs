//! Functions of texts and times of the IVOA's *Catalogue of ADQL User Defined Functions*, as it defines them.

use crate::functions::mysql::row_function::{Arity, ReturnType, RowFunction};
use crate::functions::mysql::value::Value;

/// The modified Julian date of 1970-01-01, and the Julian date of it.
const EPOCH_MJD: f64 = 40_587.0;
const EPOCH_JD: f64 = 2_440_587.5;
const MICROS_OF_DAY: f64 = 86_400e6;

pub(super) static FUNCTIONS: [RowFunction; 4] = [
    RowFunction::new("ivo_hasword", Arity(2, 2), ReturnType::Integer, |values| {
        let (haystack, needle) = (values[0].text(), values[1].text());
        Ok(truth(has_words(&haystack, &needle)))
    }),
    RowFunction::new(
        "ivo_hashlist_has",
        Arity(2, 2),
        ReturnType::Integer,
        |values| {
            let (list, item) = (
                values[0].text().to_lowercase(),
                values[1].text().to_lowercase(),
            );
            Ok(truth(list.split('#').any(|word| word == item)))
        },
    ),
    // Times come as they are; the text of one has been made a time before.
    RowFunction::new("ivo_to_jd", Arity(1, 1), ReturnType::Double, |values| {
        days(&values[0], EPOCH_JD)
    }),
    RowFunction::new("ivo_to_mjd", Arity(1, 1), ReturnType::Double, |values| {
        days(&values[0], EPOCH_MJD)
    }),
];

fn truth(holds: bool) -> Value {
    Value::Integer(holds.into())
}

/// Whether each word of the needle is one of the haystack's. Words are runs of letters and digits, without regard to case.
fn has_words(haystack: &str, needle: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect()
    };
    let there = words(haystack);
    words(needle).iter().all(|word| there.contains(word))
}

fn days(time: &Value, epoch: f64) -> Result<Value, String> {
    match time {
        Value::Date(days) => Ok(Value::Double(epoch + f64::from(*days))),
        Value::Time(micros) => Ok(Value::Double(epoch + *micros as f64 / MICROS_OF_DAY)),
        other => Err(format!("{} is no time", other.text())),
    }
}
