//! `--watch`: shows a list again and again.

use std::time::Duration;

use clap::Args;
use tokio::time::sleep;

use crate::output::exit::{CommandResult, Exit, print_failure};
use crate::output::{Screen, print};

/// Interval between two reads.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// Escape sequence that moves to the first line and clears the screen.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[J";

#[derive(Debug, Args)]
pub(crate) struct WatchOption {
    /// Show it again every 2 s, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
}

impl WatchOption {
    /// Runs `show` once, or again and again. A server that does not answer may come back.
    pub(crate) async fn run(
        &self,
        screen: &Screen,
        mut show: impl AsyncFnMut() -> CommandResult,
    ) -> CommandResult {
        if !self.watch {
            return show().await;
        }
        loop {
            if screen.is_terminal {
                print(CLEAR_SCREEN)?;
            }
            match show().await {
                Err(failure) if failure.exit == Exit::Unavailable => {
                    print_failure(&failure, screen.failure_details());
                }
                shown => _ = shown?,
            }
            sleep(WATCH_INTERVAL).await;
        }
    }
}
