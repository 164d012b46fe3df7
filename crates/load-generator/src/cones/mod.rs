//! `cones`: sends cone searches to a server at a steady rate, or as fast as it responds, and prints the statistics.

use std::fs;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use exchange::{Connection, ExchangeError};
use load_loop::{Loop, Run};
use positions::{Requests, SkyBox};
use schedule::{Arrivals, Schedule};
use tally::Tally;

mod exchange;
mod load_loop;
mod positions;
mod rows;
mod schedule;
mod tally;
#[cfg(test)]
mod test_server;

/// Until all connections' threads stand ready.
const HEAD_START: Duration = Duration::from_millis(50);
/// A time that is written into `/proc` in nanoseconds: how much later than requested a sleep may end. Usually it is 50 microseconds.
const TIMER_SLACK: &str = "1000";
/// Processor time in `/proc` is counted in hundredths of a second.
const TICKS_IN_SECOND: f64 = 100.0;

/// Why a run cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConesError {
    /// Bounds that are no box of the sky.
    #[error(
        "--ra {} {} --dec {} {} is no box of the sky: give the least right ascension (from 0) and the greatest (at most 360 \
         more), the least declination and the greatest (from -90 to 90)",
        ra.0, ra.1, dec.0, dec.1
    )]
    NoBox {
        /// Least and greatest right ascension, degrees.
        ra: (f64, f64),
        /// Least and greatest declination, degrees.
        dec: (f64, f64),
    },
    /// Text that is no address of a service.
    #[error(
        "{0} with --extra is no address to ask: give one as http://127.0.0.1:8080/scs/sky/Object, and parameters as NAME=VALUE&NAME=VALUE"
    )]
    NoAddress(String),
    /// No server responds there.
    #[error("no server responds at {authority}: {error}")]
    NoServer {
        /// Host and port.
        authority: String,
        /// What happened.
        error: ExchangeError,
    },
    /// Times cannot be counted.
    #[error("no histogram can be made: {0}")]
    NoHistogram(#[from] hdrhistogram::CreationError),
    /// A connection's thread ended badly.
    #[error("a connection's thread came to an unexpected end")]
    Thread,
}

/// Asks a server of cones at random positions, and prints rates and latencies as JSON.
///
/// Asks `GET BASE?RA=..&DEC=..&SR=..` over connections that are kept (HTTP/1.1). With --rate requests are due at times of their
/// own, and a latency counts from when the request was due, also if it had to wait for a free connection: a server that stands
/// still is slow for all who would have asked meanwhile. Without --rate each connection asks again once it has its response.
///
/// The same seed gives the same positions. A response is right if its status is 200 and its body as long as it says.
#[derive(Args)]
pub struct ConesArguments {
    /// The service, as http://127.0.0.1:8080/scs/sky/Object.
    base: String,
    /// Requests a second, whether answers come or not (default: as fast as answers come).
    #[arg(long, value_name = "R", value_parser = positive)]
    rate: Option<f64>,
    /// How requests of --rate follow each other.
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson)]
    arrivals: Arrivals,
    /// Connections.
    #[arg(long, value_name = "N", default_value = "32")]
    connections: NonZeroUsize,
    /// Seconds before anything counts.
    #[arg(long, value_name = "SECONDS", value_parser = not_negative, default_value = "2")]
    warm_up: f64,
    /// Seconds that count.
    #[arg(long, value_name = "SECONDS", value_parser = positive, default_value = "10")]
    seconds: f64,
    /// Seconds beyond the end of --rate's requests in which those that wait may still be sent.
    #[arg(long, value_name = "SECONDS", value_parser = not_negative, default_value = "10")]
    drain: f64,
    /// Radius of the cones in arcseconds.
    #[arg(long, value_name = "ARCSEC", value_parser = positive, default_value = "60")]
    radius: f64,
    /// Least and greatest right ascension of the positions in degrees; beyond 360 for a box over the seam.
    #[arg(long, value_names = ["MIN", "MAX"], num_args = 2, allow_negative_numbers = true, default_values = ["0", "360"])]
    ra: Vec<f64>,
    /// Least and greatest declination in degrees.
    #[arg(long, value_names = ["MIN", "MAX"], num_args = 2, allow_negative_numbers = true, default_values = ["-90", "90"])]
    dec: Vec<f64>,
    /// Further parameters, as RESPONSEFORMAT=csv&VERB=3.
    #[arg(long, value_name = "NAME=VALUE", default_value = "")]
    extra: String,
    /// Of positions and times.
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Count the rows of one response in K (VOTable or CSV); 0 for none.
    #[arg(long, value_name = "K", default_value = "100")]
    count_rows_every: u64,
    /// Seconds that a server may be silent before a request has failed.
    #[arg(long, value_name = "SECONDS", value_parser = positive, default_value = "30")]
    timeout: f64,
}

/// Runs the command.
///
/// # Errors
/// Arguments that make no sense, or a server that does not let itself be connected to.
#[expect(
    clippy::print_stdout,
    reason = "the figures are what the command is for"
)]
pub fn run(arguments: &ConesArguments) -> Result<(), ConesError> {
    println!("{}", measure(arguments)?);
    Ok(())
}

fn measure(arguments: &ConesArguments) -> Result<Value, ConesError> {
    // A sleep that ends late is a request that is sent late. Where it cannot be set, `sent_late_ms` shows it.
    let _ = fs::write("/proc/self/timerslack_ns", TIMER_SLACK);
    let requests = requests(arguments)?;
    let connections = connect(arguments, &requests.authority)?;
    let run = Run {
        requests,
        order: order(arguments),
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        measured: Duration::from_secs_f64(arguments.seconds),
        count_rows_every: arguments.count_rows_every,
        next: AtomicU64::new(0),
        start: Instant::now() + HEAD_START,
    };
    let (tally, cpu_seconds) = run_connections(&run, connections)?;
    let elapsed = match run.order {
        // Answers that came after the last request was due were too slow for the rate.
        Loop::Open { .. } => run
            .measured
            .max(tally.last_answer().saturating_sub(run.warm_up)),
        Loop::Closed => run.measured,
    };
    Ok(describe(arguments, tally.as_json(elapsed), cpu_seconds))
}

fn requests(arguments: &ConesArguments) -> Result<Requests, ConesError> {
    let bounds = |values: &[f64]| (values[0], values[1]);
    let sky = SkyBox::from_degrees(bounds(&arguments.ra), bounds(&arguments.dec))?;
    Requests::new(
        &arguments.base,
        sky,
        arguments.radius,
        &arguments.extra,
        arguments.seed,
    )
}

fn connect(arguments: &ConesArguments, authority: &str) -> Result<Vec<Connection>, ConesError> {
    (0..arguments.connections.get())
        .map(|_| Connection::open(authority, Duration::from_secs_f64(arguments.timeout)))
        .collect::<Result<_, _>>()
        .map_err(|error| ConesError::NoServer {
            authority: authority.to_owned(),
            error,
        })
}

fn order(arguments: &ConesArguments) -> Loop {
    let length = Duration::from_secs_f64(arguments.warm_up + arguments.seconds);
    arguments.rate.map_or(Loop::Closed, |rate| Loop::Open {
        schedule: Schedule::new(arguments.arrivals, rate, length, arguments.seed),
        drain: Duration::from_secs_f64(arguments.drain),
    })
}

/// Asks over all connections at once; gives all counts, and the processor time that this took while it was measured.
fn run_connections(run: &Run, connections: Vec<Connection>) -> Result<(Tally, f64), ConesError> {
    thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(|| run.run_connection(connection)))
            .collect();
        thread::sleep(HEAD_START + run.warm_up);
        let before = processor_seconds();
        let mut all = Tally::new()?;
        for thread in threads {
            all.add(&thread.join().map_err(|_| ConesError::Thread)??);
        }
        Ok((all, processor_seconds() - before))
    })
}

/// Processor time of this process in seconds; 0 where the system does not say.
fn processor_seconds() -> f64 {
    let status = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything; user and system time are the twelfth and thirteenth after it.
    let fields = status.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks as f64 / TICKS_IN_SECOND
}

/// The figures, and what they are of.
fn describe(arguments: &ConesArguments, figures: Value, cpu_seconds: f64) -> Value {
    let mut described = json!({
        "base": arguments.base,
        "loop": if arguments.rate.is_some() { "open" } else { "closed" },
        "rate": arguments.rate,
        "connections": arguments.connections.get(),
        "radius_arcsec": arguments.radius,
        "warm_up_seconds": arguments.warm_up,
        "seconds": arguments.seconds,
        "seed": arguments.seed,
        "cpu_seconds": cpu_seconds,
    });
    if let (Value::Object(described), Value::Object(figures)) = (&mut described, figures) {
        described.extend(figures);
    }
    described
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text).and_then(|value| {
        if value > 0.0 {
            Ok(value)
        } else {
            Err("give a number greater than 0".to_owned())
        }
    })
}

fn not_negative(text: &str) -> Result<f64, String> {
    // Durations and counts of more than this are a slip of the pen.
    match text.parse::<f64>() {
        Ok(value) if (0.0..1e9).contains(&value) => Ok(value),
        _ => Err("give a number from 0 to a billion".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use test_server::{TestServer, answer};

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        arguments: ConesArguments,
    }

    /// Runs `cones` on a server with some options.
    fn figures(server: &TestServer, options: &str) -> Value {
        let base = format!("http://{}/scs/sky/Star", server.authority);
        let words = ["cones", &base]
            .into_iter()
            .chain(options.split_whitespace());
        measure(&Words::parse_from(words).arguments).unwrap()
    }

    fn milliseconds(figures: &Value, percentile: &str) -> f64 {
        figures["latency_ms"][percentile].as_f64().unwrap()
    }

    #[test]
    fn a_steady_rate_is_kept_and_every_answer_counted() {
        let server = TestServer::new(|_, _| answer(200, "ra,dec\n1,2\n3,4\n"));
        let options = "--rate 200 --arrivals fixed --connections 4 --warm-up 0.25 --seconds 0.5 --count-rows-every 10";
        let figures = figures(&server, options);
        assert_eq!(
            (&figures["requests"], &figures["errors"]),
            (&json!(100), &json!(0))
        );
        assert_eq!(
            (&figures["counted_answers"], &figures["counted_rows"]),
            (&json!(10), &json!(20))
        );
        assert_eq!(
            (&figures["bytes"], &figures["all_answers"]),
            (&json!(1500), &json!(150))
        );
        assert_eq!(server.connections(), 4);
    }

    #[test]
    fn a_server_that_stands_still_is_slow_for_all_who_would_have_asked() {
        // It stands still for 400 ms once. Every one of the 80 requests that were due meanwhile waited, on average half as long;
        // a clock that starts when a request is sent would see one slow answer.
        let server = TestServer::new(|number, _| {
            if number == 20 {
                thread::sleep(Duration::from_millis(400));
            }
            answer(200, "ra,dec\n")
        });
        let figures = figures(
            &server,
            "--rate 200 --arrivals fixed --connections 1 --warm-up 0 --seconds 1",
        );
        assert_eq!(
            (&figures["requests"], &figures["errors"]),
            (&json!(200), &json!(0))
        );
        assert!(milliseconds(&figures, "max") >= 395.0, "{figures}");
        assert!(milliseconds(&figures, "p90") >= 250.0, "{figures}");
        assert!(milliseconds(&figures, "mean") >= 75.0, "{figures}");
    }

    #[test]
    fn what_is_never_sent_is_counted_with_what_it_waited() {
        let server = TestServer::new(|_, _| {
            thread::sleep(Duration::from_millis(100));
            answer(200, "ra,dec\n")
        });
        let options =
            "--rate 100 --arrivals fixed --connections 1 --warm-up 0 --seconds 0.5 --drain 0.2";
        let figures = figures(&server, options);
        assert_eq!(figures["requests"], 50);
        let (answers, unsent) = (
            figures["answers"].as_u64().unwrap(),
            figures["never_sent"].as_u64().unwrap(),
        );
        assert_eq!(answers + unsent, 50);
        assert!((1..=8).contains(&answers), "{figures}");
        assert!(milliseconds(&figures, "p50") >= 200.0, "{figures}");
    }

    #[test]
    fn as_fast_as_answers_come() {
        let server = TestServer::new(|_, _| {
            thread::sleep(Duration::from_millis(20));
            answer(200, "ra,dec\n")
        });
        let figures = figures(&server, "--connections 5 --warm-up 0.1 --seconds 0.5");
        // Five connections with a response in 20 ms each, if nobody else uses the machine.
        let rate = figures["achieved_rate"].as_f64().unwrap();
        assert!((50.0..=250.0).contains(&rate), "{figures}");
        assert!(milliseconds(&figures, "p50") >= 19.9, "{figures}");
    }

    #[test]
    fn wrong_answers_are_errors_and_have_no_latency() {
        let server = TestServer::new(|number, _| match number % 3 {
            0 => answer(503, "busy"),
            1 => answer(
                200,
                "<VOTABLE><INFO name=\"QUERY_STATUS\" value=\"ERROR\"/></VOTABLE>",
            ),
            _ => vec![
                b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nshort".to_vec(),
            ],
        });
        let options = "--rate 100 --arrivals fixed --connections 1 --warm-up 0 --seconds 0.3 --count-rows-every 1";
        let figures = figures(&server, options);
        assert_eq!(
            (&figures["errors"], &figures["latency_ms"]),
            (&json!(30), &Value::Null)
        );
        let complaints = figures["complaints"].as_object().unwrap();
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints.values().all(|count| *count == 10));
    }

    #[test]
    fn the_same_seed_asks_the_same_over_any_number_of_connections() {
        use std::sync::{Arc, Mutex};
        let run_over = |connections: u32, seed: u32| {
            let asked = Arc::new(Mutex::new(Vec::new()));
            let noted = Arc::clone(&asked);
            let server = TestServer::new(move |_, line| {
                noted.lock().unwrap().push(line.to_owned());
                answer(200, "ra,dec\n")
            });
            let options = format!(
                "--rate 400 --connections {connections} --warm-up 0 --seconds 0.2 --seed {seed}"
            );
            figures(&server, &options);
            let mut lines = asked.lock().unwrap().clone();
            lines.sort();
            lines
        };
        let alone = run_over(1, 3);
        assert!(alone.len() > 40);
        assert_eq!(alone, run_over(6, 3));
        assert_ne!(alone, run_over(6, 4));
    }

    #[test]
    fn a_server_that_is_not_there_is_said() {
        let words = ["cones", "http://127.0.0.1:1/x", "--seconds", "1"];
        let said = measure(&Words::parse_from(words).arguments)
            .unwrap_err()
            .to_string();
        assert!(
            said.starts_with("no server responds at 127.0.0.1:1: "),
            "{said}"
        );
    }
}
