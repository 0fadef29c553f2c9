use super::State;
