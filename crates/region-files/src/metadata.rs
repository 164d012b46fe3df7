//! What an Arrow file says of itself: its footer, and the message before the body of each record batch.
//!
//! Arrow's reader takes what these say for true; a number that has changed on a disk can make it panic. So their checksum is in the index and
//! is compared before that reader gets to see a file, whatever else is to be verified. What a damaged body does is an error or another value.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use arrow::ipc::reader::read_footer_length;
use arrow::ipc::root_as_footer;
use sha2::{Digest, Sha256};

use crate::error::RegionFilesError;
use crate::summed::in_digits;

/// The length of the footer, and the word `ARROW1`, at the end of a file.
const TRAILER: usize = 10;

/// The checksum of what a file of so many bytes says of itself: of its footer with all that is behind it, then of the messages in the order in which
/// the footer lists them. None if it has no footer, or one that places messages elsewhere than before it.
pub(crate) fn checksum(file: &File, bytes: u64) -> io::Result<Option<String>> {
    let mut trailer = [0; TRAILER];
    let Some(trailer_at) = bytes.checked_sub(TRAILER as u64) else {
        return Ok(None);
    };
    read_at(file, trailer_at, &mut trailer)?;
    let length = read_footer_length(trailer).ok();
    let Some((length, footer_at)) =
        length.and_then(|length| Some((length, trailer_at.checked_sub(length as u64)?)))
    else {
        return Ok(None);
    };
    let mut footer = vec![0; length];
    read_at(file, footer_at, &mut footer)?;
    let mut sum = Sha256::new();
    sum.update(&footer);
    sum.update(trailer);
    let Ok(found) = root_as_footer(&footer) else {
        return Ok(None);
    };
    let mut message = Vec::new();
    let mut end_before = 0;
    for block in found.recordBatches().into_iter().flatten() {
        let (Ok(at), Ok(length)) = (
            u64::try_from(block.offset()),
            u64::try_from(block.metaDataLength()),
        ) else {
            return Ok(None);
        };
        // They follow each other, so that no more is read than there is.
        let end = at.checked_add(length).filter(|end| *end <= footer_at);
        let Some(end) = end.filter(|_| at >= end_before) else {
            return Ok(None);
        };
        message.resize(block.metaDataLength().unsigned_abs() as usize, 0);
        read_at(file, at, &mut message)?;
        sum.update(&message);
        end_before = end;
    }
    Ok(Some(in_digits(sum)))
}

fn read_at(mut file: &File, at: u64, bytes: &mut [u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(bytes)
}

/// Compares the checksum with that of the index.
pub(crate) fn verify(
    file: &File,
    path: &Path,
    bytes: u64,
    sum: &str,
) -> Result<(), RegionFilesError> {
    let found = checksum(file, bytes).map_err(RegionFilesError::io("read", path))?;
    match found.is_some_and(|found| found == sum) {
        true => Ok(()),
        false => Err(RegionFilesError::damaged(
            path,
            "the checksum of what it says of its rows is not that of the index",
        )),
    }
}
