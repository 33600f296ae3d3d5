//! The result of every comparison: rows of labels, and figures with a value of each turn.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use super::spread::{Spread, percentile};

/// A table, with its name in documents. It is stored as JSON and shown as Markdown.
#[derive(Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// Heads of the labels.
    labels: Vec<String>,
    /// Figures and rows are in the order in which they were first added.
    figures: Vec<Figure>,
    rows: Vec<TableRow>,
}

#[derive(Serialize, Deserialize)]
struct Figure {
    head: String,
    /// Decimals that are shown.
    digits: usize,
}

#[derive(Serialize, Deserialize)]
struct TableRow {
    labels: Vec<String>,
    /// The values of each figure.
    values: Vec<Vec<f64>>,
}

/// The values of one figure of one row.
pub(crate) struct Series<'a> {
    /// The labels of the row.
    pub(crate) row: String,
    pub(crate) head: &'a str,
    pub(crate) values: &'a [f64],
}

/// The figures of one row, to add values to.
pub(crate) struct RowFigures<'a> {
    figures: &'a mut Vec<Figure>,
    values: &'a mut Vec<Vec<f64>>,
}

impl Table {
    pub(crate) fn new(name: &str, labels: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            labels: labels.iter().map(ToString::to_string).collect(),
            figures: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Returns the row with these labels, and creates it if it is missing.
    pub(crate) fn row(&mut self, labels: &[&dyn Display]) -> RowFigures<'_> {
        let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        let existing = self.rows.iter().position(|row| row.labels == labels);
        let at = existing.unwrap_or_else(|| {
            let values = Vec::new();
            self.rows.push(TableRow { labels, values });
            self.rows.len() - 1
        });
        RowFigures {
            figures: &mut self.figures,
            values: &mut self.rows[at].values,
        }
    }

    /// Returns the median of a figure of the row with these labels, with its unit, or `not
    /// measured`.
    pub(crate) fn median(&self, row: &str, head: &str, unit: &str) -> String {
        let is_it = |series: &Series<'_>| series.row == row && series.head == head;
        let series = self.series().find(is_it);
        let spread = series.and_then(|series| Spread::new(series.values.to_vec()));
        spread.map_or("not measured".to_owned(), |Spread { median, .. }| {
            format!("{median:.1} {unit}")
        })
    }

    /// Returns all figures that have values, row by row.
    pub(crate) fn series(&self) -> impl Iterator<Item = Series<'_>> {
        self.rows.iter().flat_map(|row| {
            let values = self.figures.iter().zip(&row.values);
            let values = values.filter(|(_, values)| !values.is_empty());
            values.map(move |(figure, values)| Series {
                row: row.labels.join(", "),
                head: &figure.head,
                values,
            })
        })
    }

    fn cells(&self, row: &TableRow) -> Vec<String> {
        let mut cells = row.labels.clone();
        for (at, Figure { digits, .. }) in self.figures.iter().enumerate() {
            let spread = row.values.get(at).cloned().and_then(Spread::new);
            cells.push(spread.map_or("-".to_owned(), |spread| format!("{spread:.digits$}")));
        }
        cells
    }
}

impl RowFigures<'_> {
    /// Adds the value of a figure in one turn. `None` makes sure that its column exists.
    pub(crate) fn add(&mut self, head: &str, digits: usize, value: impl Into<Option<f64>>) {
        let existing = self.figures.iter().position(|figure| figure.head == head);
        let at = existing.unwrap_or_else(|| {
            let head = head.to_owned();
            self.figures.push(Figure { head, digits });
            self.figures.len() - 1
        });
        if self.values.len() <= at {
            self.values.resize(at + 1, Vec::new());
        }
        self.values[at].extend(value.into());
    }

    /// Adds the median and the 99th percentile of the times of a turn, in milliseconds.
    pub(crate) fn add_times(&mut self, what: &str, milliseconds: &mut [f64]) {
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let head = format!("{what} {name}, ms");
            self.add(&head, 2, percentile(milliseconds, share));
        }
    }
}

impl Display for Table {
    /// Markdown with aligned columns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut heads = self.labels.clone();
        heads.extend(self.figures.iter().map(|figure| figure.head.clone()));
        let mut lines = vec![heads];
        lines.extend(self.rows.iter().map(|row| self.cells(row)));
        let columns = lines[0].len();
        let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
        let widths: Vec<usize> = (0..columns).filter_map(width).collect();
        for (at, line) in lines.iter().enumerate() {
            for (cell, width) in line.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if at == 0 {
                writeln!(f, "|{}", "---|".repeat(columns))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let mut table = Table::new("example", &["name", "number"]);
        for turn in [1.0, 2.0] {
            table.row(&[&"longer name", &1]).add("a/s", 1, turn);
            table.row(&[&"x", &20]).add("b", 0, None);
        }
        table
    }

    #[test]
    fn rows_have_labels_and_the_values_of_all_turns() {
        let expected = "| name        | number | a/s           | b |\n|---|---|---|---|\n\
            | longer name | 1      | 2.0 (1.0-2.0) | - |\n\
            | x           | 20     | -             | - |\n";
        let table = example();
        assert_eq!(table.to_string(), expected);
        let kept = serde_json::to_string(&table).unwrap();
        let again: Table = serde_json::from_str(&kept).unwrap();
        assert_eq!(again.to_string(), expected);
    }

    #[test]
    fn a_median_is_found_by_its_labels_and_its_head() {
        let table = example();
        assert_eq!(table.median("longer name, 1", "a/s", "MiB"), "2.0 MiB");
        assert_eq!(table.median("x, 20", "a/s", "MiB"), "not measured");
        assert_eq!(table.median("x, 1", "a/s", "MiB"), "not measured");
    }
}
