//! Plain aligned columns: no lines around them, easy to read and to cut.

use comfy_table::{
    Attribute, Cell as Drawn, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row,
    Table as Canvas, Width, presets::NOTHING,
};

use crate::cli::screen::Screen;
use crate::model::TaskState;

#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug)]
struct Column {
    name: &'static str,
    right: bool,
    /// May lose the end of its texts where the terminal is narrow.
    shrinks: bool,
}

#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    colour: Option<Color>,
}

/// Between two columns.
const GAP: u16 = 2;

impl Table {
    /// `>NAME` is aligned to the right, `~NAME` shrinks where the terminal is narrow.
    pub fn new(columns: impl IntoIterator<Item = &'static str>) -> Table {
        let column = |name: &'static str| Column {
            name: name.trim_start_matches(['>', '~']),
            right: name.starts_with('>'),
            shrinks: name.starts_with('~'),
        };
        Table { columns: columns.into_iter().map(column).collect(), rows: Vec::new() }
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
        if let Some(width) = screen.width.filter(|_| !screen.is_wide()) {
            canvas.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        if screen.header {
            let bold = |column: &Column| Drawn::new(column.name).add_attribute(Attribute::Bold);
            canvas.set_header(Row::from(self.columns.iter().map(bold).collect::<Vec<_>>()));
        }
        for cells in &self.rows {
            let mut row = Row::from(cells.iter().map(Cell::drawn).collect::<Vec<_>>());
            row.max_height(1);
            canvas.add_row(row);
        }
        for (drawn, column) in canvas.column_iter_mut().zip(&self.columns) {
            drawn.set_padding((0, GAP));
            let least = Width::Fixed(column.name.len() as u16 + GAP);
            drawn.set_constraint(match column.shrinks {
                true => ColumnConstraint::LowerBoundary(least),
                false => ColumnConstraint::ContentWidth,
            });
            if column.right {
                drawn.set_cell_alignment(CellAlignment::Right);
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
