//! `tidegate-bench layout`: how long graphs take to be laid out and drawn, and how many of their lines cross.
//!
//! Ordinary shapes, and the worst with a million lines. Ten thousand jobs must take less than 200 ms.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use serde::{Deserialize, Serialize};
use tidegate_workflow::layout::Layout;
use tidegate_workflow::picture::{Colour, Glyphs, Picture, Terminal, TooLarge};
use tidegate_workflow::{Definition, Graph, JobDefinition};

use crate::figures::{self, Sheet, Table, Turns, finish, spread};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    turns: Turns,
    /// Jobs of the graphs.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000])]
    jobs: Vec<usize>,
    /// Dependencies of the densest graph, as far as its jobs allow.
    #[arg(long, default_value_t = 1_000_000)]
    most: usize,
}

const TERMINAL: Terminal = Terminal {
    width: 120,
    glyphs: Glyphs::Unicode,
    colour: Colour::None,
};
/// A few turns of small graphs say little; more than this many say no more.
const MOST_TURNS: u32 = 100;

/// A kind of graph.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// One after the other.
    Chain,
    /// One, then all others side by side, then one.
    Fan,
    /// A hundred side by side, each after two of those before.
    Layers,
    /// One, two side by side, one, and so on.
    Diamonds,
    /// Each after two of any before it.
    Sparse,
    /// Each after a hundred of any before it, by default.
    Dense,
}

const SHAPES: [Shape; 6] = [
    Shape::Chain,
    Shape::Fan,
    Shape::Layers,
    Shape::Diamonds,
    Shape::Sparse,
    Shape::Dense,
];

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    rows: Vec<Row>,
}

/// What was measured of one graph. Times are in milliseconds.
#[derive(Serialize, Deserialize)]
struct Row {
    shape: String,
    jobs: usize,
    dependencies: usize,
    layout_ms: Vec<f64>,
    svg_ms: Vec<f64>,
    text_ms: Vec<f64>,
    /// None when it is refused.
    svg_bytes: Option<usize>,
    lines_not_drawn: usize,
    crossings_by_definition: u64,
    crossings_as_drawn: u64,
}

/// Measures, prints the table and writes the JSON.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for &jobs in &arguments.jobs {
        for shape in SHAPES {
            rows.push(Row::measure(
                shape,
                (jobs, arguments.most),
                &arguments.turns,
            )?);
        }
    }
    finish(&Results { rows }, &arguments.turns.results)
}

impl Row {
    fn measure(shape: Shape, (jobs, most): (usize, usize), turns: &Turns) -> anyhow::Result<Self> {
        eprintln!("{} of {jobs}", shape.name());
        let graph = shape.graph(jobs, most)?;
        let picture = Picture::new(&graph, None);
        let (crossings_by_definition, crossings_as_drawn) = Layout::crossings(&graph);
        Ok(Self {
            shape: shape.name().to_owned(),
            jobs: graph.jobs.len(),
            dependencies: graph.jobs.iter().map(|job| job.parents.len()).sum(),
            layout_ms: times(turns, || drop(black_box(Layout::of(&graph)))),
            svg_ms: times(turns, || {
                drop::<Result<String, TooLarge>>(black_box(picture.svg()))
            }),
            text_ms: times(turns, || drop(black_box(picture.text(&TERMINAL)))),
            svg_bytes: picture.svg().map(|svg| svg.len()).ok(),
            lines_not_drawn: Layout::of(&graph).undrawn,
            crossings_by_definition,
            crossings_as_drawn,
        })
    }

    fn cells(&self) -> Vec<String> {
        let times = |times: &[f64]| spread(times.iter().copied(), 1);
        vec![
            self.shape.clone(),
            self.jobs.to_string(),
            self.dependencies.to_string(),
            times(&self.layout_ms),
            times(&self.svg_ms),
            times(&self.text_ms),
            self.svg_bytes
                .map_or_else(|| "refused".to_owned(), |bytes| (bytes / 1_000).to_string()),
            self.lines_not_drawn.to_string(),
            self.crossings_by_definition.to_string(),
            self.crossings_as_drawn.to_string(),
        ]
    }
}

/// Milliseconds of each turn. There are as many as fit the length of a turn and at least one for each round.
fn times(turns: &Turns, mut work: impl FnMut()) -> Vec<f64> {
    work();
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < turns.rounds as usize
        || (begin.elapsed() < turns.turn && times.len() < MOST_TURNS as usize)
    {
        let begin = Instant::now();
        work();
        times.push(begin.elapsed().div_duration_f64(Duration::from_millis(1)));
    }
    times
}

impl figures::Results for Results {
    const NAME: &str = "layout";

    fn tables(&self) -> Vec<Table> {
        let mut sheet = Sheet::new(&[
            "graph",
            "jobs",
            "dependencies",
            "layout ms",
            "svg ms",
            "text ms",
            "svg kB",
            "lines not drawn",
            "crossings by definition",
            "as drawn",
        ]);
        self.rows.iter().for_each(|row| sheet.row(row.cells()));
        vec![Table::new("layout", sheet)]
    }
}

impl Shape {
    const fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Fan => "fan out and in",
            Self::Layers => "layers of 100",
            Self::Diamonds => "diamonds",
            Self::Sparse => "random, sparse",
            Self::Dense => "random, dense",
        }
    }

    fn graph(self, jobs: usize, most: usize) -> anyhow::Result<Graph> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut any = |below: usize, count: usize| {
            (0..count.min(below))
                .map(|_| random.usize(..below))
                .collect()
        };
        let mut parents = |at: usize| -> Vec<usize> {
            match self {
                _ if at == 0 => Vec::new(),
                Self::Chain => vec![at - 1],
                Self::Fan if at == jobs - 1 => (1..at).collect(),
                Self::Fan => vec![0],
                Self::Layers if at < 100 => Vec::new(),
                Self::Layers => vec![
                    at / 100 * 100 - 100 + at % 100,
                    at / 100 * 100 - 100 + (at * 7 + 3) % 100,
                ],
                Self::Diamonds if at.is_multiple_of(3) => vec![at - 1, at - 2],
                Self::Diamonds => vec![(at - 1) / 3 * 3],
                Self::Sparse => any(at, 2),
                Self::Dense => any(at, most / jobs),
            }
        };
        let name = |at: usize| format!("job-{at}");
        let job = |at: usize| {
            let after = parents(at).into_iter().map(name).collect();
            JobDefinition {
                after,
                ..JobDefinition::new(name(at), "Handler")
            }
        };
        let definition = Definition {
            name: self.name().to_owned(),
            jobs: (0..jobs).map(job).collect(),
            ..Definition::default()
        };
        Graph::build(definition).map_err(|error| anyhow!("a {} of {jobs}: {error}", self.name()))
    }
}
