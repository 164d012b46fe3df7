//! `meridian sky` as a program: what it reads, writes and rejects.

#![allow(clippy::unwrap_used, reason = "a failure is the test's own message")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs `meridian sky ARGUMENTS` on the input.
fn sky(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_meridian"))
        .arg("sky")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // The program may reject its arguments and never read.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn standard_output(output: &Output) -> &str {
    assert!(output.status.success(), "{}", standard_error(output));
    assert_eq!(standard_error(output), "");
    std::str::from_utf8(&output.stdout).unwrap()
}

fn standard_error(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

const LOCATE: [&str; 5] = ["locate", "--stripes", "85", "--sub-stripes", "12"];

#[test]
fn locate_writes_chunk_and_sub_chunk_behind_the_position_as_typed() {
    let input = "184.2557848920924,-89.81183969708249\n51.897460579068145, 89.68610134475296\n";
    let output = sky(&LOCATE, input.as_bytes());
    assert_eq!(
        standard_output(&output),
        "184.2557848920924,-89.81183969708249,0,71\n51.897460579068145, 89.68610134475296,14280,690\n"
    );
}

#[test]
fn header_blank_lines_and_foreign_line_ends_are_passed_over() {
    let input = "\u{feff}RA,Dec\r\n\r\n0.10,0\r\n\n360.10,+0.0";
    let output = sky(&LOCATE, input.as_bytes());
    let lines: Vec<&str> = standard_output(&output).lines().collect();
    assert_eq!(lines.len(), 2);
    let answer = lines[0].strip_prefix("0.10,0,").unwrap();
    assert_eq!(lines[1].strip_prefix("360.10,+0.0,").unwrap(), answer);
}

#[test]
fn no_input_gives_no_output() {
    assert_eq!(standard_output(&sky(&LOCATE, b"")), "");
    assert_eq!(standard_output(&sky(&LOCATE, b"ra,dec\n")), "");
}

#[test]
fn a_bad_line_is_reported_with_its_number() {
    for (input, number, complaint) in [
        ("ra,dec\n1,2\n\n3,x\n", 4, "\"x\" is not a number"),
        ("1,2\n3\n", 2, "\"3\" is not a position"),
        ("1,2\n1,91\n", 2, "declination 91 is outside"),
        ("nan,2\n", 1, "right ascension NaN is not a finite number"),
        ("1,2,3\n", 1, "\"2,3\" is not a number"),
        ("1,2\nra,dec\n", 2, "\"ra\" is not a number"),
    ] {
        let output = sky(&LOCATE, input.as_bytes());
        assert_eq!(output.status.code(), Some(1), "{input}");
        let message = standard_error(&output);
        assert!(message.contains(&format!("line {number}: ")), "{message}");
        assert!(message.contains(complaint), "{message}");
    }
}

#[test]
fn lines_before_a_bad_one_are_answered() {
    let output = sky(&LOCATE, b"0,0\nx,y\n");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("0,0,"));
}

#[test]
fn bytes_that_are_no_text_are_a_bad_line() {
    let output = sky(&LOCATE, b"0,0\n\xff\xfe,3\n");
    assert!(standard_error(&output).contains("line 2: "));
}

#[test]
fn chunks_writes_one_number_a_line() {
    let arguments = ["chunks", "--stripes", "85", "--sub-stripes", "12"];
    let run = |region: &str| sky(&[&arguments[..], &[region]].concat(), b"");
    assert_eq!(
        standard_output(&run(
            "box 218.43375662532463 -90 241.50916057397848 -81.80357105767948"
        )),
        "0\n173\n347\n348\n520\n521\n522\n"
    );
    assert_eq!(
        standard_output(&run(
            "circle 104.97716529031815 87.70348174800522 0.2633478733293693"
        )),
        "14111\n14280\n"
    );
    assert_eq!(
        standard_output(&run("box 0 -90 360 90")).lines().count(),
        8983
    );
    assert!(standard_error(&run("blob 1 2 3")).contains("is not a region; write"));
    assert!(standard_error(&run("circle 1 2")).contains("takes 3 numbers, but 2 are given"));
}

#[test]
fn a_region_needs_no_quotes() {
    let quoted = sky(
        &[
            "chunks",
            "--stripes",
            "18",
            "--sub-stripes",
            "3",
            "circle 10 -5 1.5",
        ],
        b"",
    );
    let bare = sky(
        &[
            "chunks",
            "circle",
            "10",
            "-5",
            "1.5",
            "--stripes",
            "18",
            "--sub-stripes",
            "3",
        ],
        b"",
    );
    assert_eq!(standard_output(&quoted), standard_output(&bare));
}

#[test]
fn htm_writes_the_trixel() {
    let output = sky(
        &["htm", "--level", "4"],
        b"ra,dec\n128.86430615148964,89.8872731959159\n",
    );
    assert_eq!(
        standard_output(&output),
        "128.86430615148964,89.8872731959159,3648\n"
    );
    let rejected = sky(&["htm", "--level", "25"], b"");
    assert!(standard_error(&rejected).contains("HTM has no level 25; give one of 0 to 24"));
}

#[test]
fn an_impossible_cut_is_rejected() {
    let output = sky(&["locate", "--stripes", "0", "--sub-stripes", "12"], b"");
    assert!(standard_error(&output).contains("cannot be cut into 0 stripes"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn many_lines_stream_through() {
    let input: String = (0..200_000)
        .map(|i| format!("{},{}\n", i % 360, i % 181 - 90))
        .collect();
    let output = sky(&LOCATE, input.as_bytes());
    assert_eq!(standard_output(&output).lines().count(), 200_000);
}
