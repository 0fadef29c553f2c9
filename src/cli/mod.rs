//! `drigs`: what people type.

pub mod lab;
