//! Runs h2load, the load tool of published figures.

use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use tempfile::NamedTempFile;
use tidegate_pipeline::Address;

use crate::load::{PATH, Shape, one_body};
use crate::machine::printed;

/// h2load with ten connections of twenty streams, which repeats one body.
pub(super) struct H2load {
    address: Address,
    body: NamedTempFile,
}

impl H2load {
    pub(super) fn new(address: Address, shape: &Shape) -> Result<Self> {
        let mut body = NamedTempFile::new().context("could not make a file for the body")?;
        body.write_all(&one_body(shape)?)
            .context("could not write the body")?;
        Ok(Self { address, body })
    }

    /// Sends the requests and returns their rate a second. Fails unless all were answered.
    pub(super) fn run(&self, requests: u64) -> Result<f64> {
        let mut command = Command::new("h2load");
        command
            .args(["-c", "10", "-m", "20", "-t", "1", "-n"])
            .arg(requests.to_string())
            .arg("-d")
            .arg(self.body.path())
            .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
            .arg(format!("http://{}{PATH}", self.address));
        read(&printed(&mut command)?, requests)
    }
}

/// Parses the rate in the output of h2load.
fn read(text: &str, requests: u64) -> Result<f64> {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let succeeded = line("requests: ").and_then(|line| word_before(line, "succeeded"));
    let rate = line("finished in ").and_then(|line| word_before(line, "req/s"));
    match (succeeded, rate) {
        (Some(succeeded), Some(rate)) if succeeded == requests as f64 => Ok(rate),
        _ => bail!("h2load did not get {requests} answers:\n{text}"),
    }
}

/// Returns the number before a word.
fn word_before(line: &str, word: &str) -> Option<f64> {
    let words: Vec<&str> = line.split([' ', ',']).collect();
    let place = words.iter().position(|candidate| *candidate == word)?;
    words.get(place.checked_sub(1)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "progress: 100% done\n\nfinished in 1.42s, 210996.73 req/s, 7.45MB/s\n\
        requests: 300 total, 300 started, 300 done, 300 succeeded, 0 failed, 0 errored, 0 timeout\n";

    #[test]
    fn the_rate_is_read_when_all_requests_succeeded() {
        assert_eq!(read(PRINTED, 300).unwrap(), 210_996.73);
        assert!(read(PRINTED, 301).is_err());
        assert!(read("", 1).is_err());
    }
}
