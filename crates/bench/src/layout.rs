//! `tidegate-bench layout`: how long graphs take to be laid out and drawn, and how many of their lines cross.
//!
//! Ordinary shapes and the worst: lines by the million. What is promised is that ten thousand jobs take less than 200 ms.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::{Value, json};
use tidegate_workflow::layout::Layout;
use tidegate_workflow::picture::{Colour, Glyphs, Picture, Terminal, TooLarge};
use tidegate_workflow::{Definition, Graph, JobDefinition};

use crate::figures::Sheet;
use crate::figures::Spread;
use crate::figures::Turns;
use crate::figures::write_json;

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

const TERMINAL: Terminal = Terminal { width: 120, glyphs: Glyphs::Unicode, colour: Colour::None };
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

const SHAPES: [Shape; 6] = [Shape::Chain, Shape::Fan, Shape::Layers, Shape::Diamonds, Shape::Sparse, Shape::Dense];

/// What was measured of one graph.
struct Figures {
    shape: Shape,
    graph: Graph,
    /// In milliseconds.
    layout: Spread,
    svg: Spread,
    text: Spread,
    /// None when it is refused.
    svg_bytes: Option<usize>,
    undrawn: usize,
    /// By the order of definition, and as drawn.
    crossings: (u64, u64),
}

/// Measures, prints the table and writes the JSON.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for &jobs in &arguments.jobs {
        for shape in SHAPES {
            all.push(Figures::measure(shape, (jobs, arguments.most), &arguments.turns)?);
        }
    }
    println!("{}", sheet(&all));
    let rows: Vec<Value> = all.iter().map(Figures::to_json).collect();
    write_json(&arguments.turns.results.join("layout.json"), &json!({ "rows": rows }))
}

impl Figures {
    fn measure(shape: Shape, (jobs, most): (usize, usize), turns: &Turns) -> anyhow::Result<Self> {
        eprintln!("{} of {jobs}", shape.name());
        let graph = shape.graph(jobs, most)?;
        let picture = Picture::new(&graph, None);
        let layout = Layout::of(&graph);
        let svg_bytes = picture.svg().map(|svg| svg.len()).ok();
        Ok(Self {
            layout: times(turns, || drop(black_box(Layout::of(&graph))))?,
            svg: times(turns, || drop::<Result<String, TooLarge>>(black_box(picture.svg())))?,
            text: times(turns, || drop(black_box(picture.text(&TERMINAL))))?,
            svg_bytes,
            undrawn: layout.undrawn,
            crossings: Layout::crossings(&graph),
            shape,
            graph,
        })
    }

    fn dependencies(&self) -> usize {
        self.graph.jobs.iter().map(|job| job.parents.len()).sum()
    }

    fn to_json(&self) -> Value {
        json!({
            "shape": self.shape.name(),
            "jobs": self.graph.jobs.len(),
            "dependencies": self.dependencies(),
            "layout_ms": self.layout.to_json(),
            "svg_ms": self.svg.to_json(),
            "text_ms": self.text.to_json(),
            "svg_bytes": self.svg_bytes,
            "lines_not_drawn": self.undrawn,
            "crossings": { "before": self.crossings.0, "after": self.crossings.1 },
        })
    }
}

/// Milliseconds of each turn. There are as many as fit the length of a turn and at least one for each round.
fn times(turns: &Turns, mut work: impl FnMut()) -> anyhow::Result<Spread> {
    work();
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < turns.rounds as usize || (begin.elapsed() < turns.turn && times.len() < MOST_TURNS as usize) {
        let begin = Instant::now();
        work();
        times.push(begin.elapsed().div_duration_f64(Duration::from_millis(1)));
    }
    Spread::new(times).context("there is at least one round")
}

fn sheet(all: &[Figures]) -> Sheet {
    let heads = [
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
    ];
    let mut sheet = Sheet::new(&heads);
    for figures in all {
        sheet.row(vec![
            figures.shape.name().to_owned(),
            figures.graph.jobs.len().to_string(),
            figures.dependencies().to_string(),
            format!("{:.1}", figures.layout),
            format!("{:.1}", figures.svg),
            format!("{:.1}", figures.text),
            figures.svg_bytes.map_or_else(|| "refused".to_owned(), |bytes| (bytes / 1_000).to_string()),
            figures.undrawn.to_string(),
            figures.crossings.0.to_string(),
            figures.crossings.1.to_string(),
        ]);
    }
    sheet
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
        let mut any = |below: usize, count: usize| (0..count.min(below)).map(|_| random.usize(..below)).collect();
        let mut parents = |at: usize| -> Vec<usize> {
            match self {
                _ if at == 0 => Vec::new(),
                Self::Chain => vec![at - 1],
                Self::Fan if at == jobs - 1 => (1..at).collect(),
                Self::Fan => vec![0],
                Self::Layers if at < 100 => Vec::new(),
                Self::Layers => vec![at / 100 * 100 - 100 + at % 100, at / 100 * 100 - 100 + (at * 7 + 3) % 100],
                Self::Diamonds if at.is_multiple_of(3) => vec![at - 1, at - 2],
                Self::Diamonds => vec![(at - 1) / 3 * 3],
                Self::Sparse => any(at, 2),
                Self::Dense => any(at, most / jobs),
            }
        };
        let name = |at: usize| format!("job-{at}");
        let job = |at: usize| {
            let after = parents(at).into_iter().map(name).collect();
            JobDefinition { after, ..JobDefinition::new(name(at), "Handler") }
        };
        let definition =
            Definition { name: self.name().to_owned(), jobs: (0..jobs).map(job).collect(), ..Definition::default() };
        Graph::build(definition).map_err(|error| anyhow!("a {} of {jobs}: {error}", self.name()))
    }
}
