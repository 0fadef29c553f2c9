//! Plain aligned columns: no lines around them, easy to read and to cut.

use comfy_table::{
    Attribute, Cell as Drawn, CellAlignment, Color, ContentArrangement, Row, Table as Canvas,
    presets::NOTHING,
};

use crate::cli::screen::Screen;
use crate::model::TaskState;

#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    colour: Option<Color>,
}

impl Table {
    /// Columns whose name starts with `>` are aligned to the right.
    pub fn new(columns: impl IntoIterator<Item = &'static str>) -> Table {
        let named: Vec<&'static str> = columns.into_iter().collect();
        Table {
            right: named.iter().map(|name| name.starts_with('>')).collect(),
            columns: named.into_iter().map(|name| name.trim_start_matches('>')).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn draw(&self, screen: &Screen<'_>) -> String {
        let mut canvas = Canvas::new();
        canvas.load_style(NOTHING).force_no_tty();
        if screen.colours {
            canvas.enforce_styling();
        }
        match screen.width {
            Some(width) => {
                canvas.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            }
            None => drop(canvas.set_content_arrangement(ContentArrangement::Disabled)),
        }
        if screen.header {
            let bold = |name: &&str| Drawn::new(name).add_attribute(Attribute::Bold);
            canvas.set_header(Row::from(self.columns.iter().map(bold).collect::<Vec<_>>()));
        }
        for cells in &self.rows {
            let mut row = Row::from(cells.iter().map(Cell::drawn).collect::<Vec<_>>());
            row.max_height(1);
            canvas.add_row(row);
        }
        for (column, right) in canvas.column_iter_mut().zip(&self.right) {
            column.set_padding((0, 2));
            if *right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let drawn = canvas.to_string();
        drawn.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

impl Cell {
    pub fn state(state: TaskState) -> Cell {
        let colour = match state {
            TaskState::Running => Some(Color::Green),
            TaskState::Scheduled => Some(Color::Cyan),
            TaskState::Recovering => Some(Color::Yellow),
            TaskState::Failed => Some(Color::Red),
            TaskState::Cancelled => Some(Color::DarkGrey),
            TaskState::Pending | TaskState::Queued | TaskState::Completed => None,
        };
        Cell { text: state.as_str().to_owned(), colour }
    }

    /// Green for `good`, yellow for everything else.
    pub fn health(text: &str, good: &str) -> Cell {
        let colour = if text == good { Color::Green } else { Color::Yellow };
        Cell { text: text.to_owned(), colour: Some(colour) }
    }

    fn drawn(&self) -> Drawn {
        let cell = Drawn::new(&self.text);
        match self.colour {
            Some(colour) => cell.fg(colour),
            None => cell,
        }
    }
}

impl<T: ToString> From<T> for Cell {
    /// A cell is one line, and never empty, so that columns can be counted by programs.
    fn from(text: T) -> Cell {
        let text = text.to_string();
        let line = text.lines().next().unwrap_or_default().trim();
        Cell { text: if line.is_empty() { "-".to_owned() } else { line.to_owned() }, colour: None }
    }
}
