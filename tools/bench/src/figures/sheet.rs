//! A table that reads well in a terminal and in a document.

use std::fmt;

/// Rows of cells under heads, shown as a Markdown table with aligned columns.
pub(crate) struct Sheet {
    rows: Vec<Vec<String>>,
}

impl Sheet {
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self {
            rows: vec![heads.iter().map(|&head| head.to_owned()).collect()],
        }
    }

    /// Appends a row; cells that are missing stay empty.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let width = |column| {
            self.rows
                .iter()
                .map(|row| cell(row, column).len())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, width) in widths.iter().enumerate() {
                write!(f, "| {:<width$} ", cell(row, column))?;
            }
            writeln!(f, "|")?;
            if index == 0 {
                writeln!(f, "|{}", "---|".repeat(columns))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_short_rows_filled() {
        let mut sheet = Sheet::new(&["name", "n"]);
        sheet.row(vec!["longer name".into(), "1".into()]);
        sheet.row(vec!["x".into()]);
        let expected = "| name        | n |\n|---|---|\n| longer name | 1 |\n| x           |   |\n";
        assert_eq!(sheet.to_string(), expected);
    }
}
