//! Everything that needs more than one module, or real programs.

mod supervision;
