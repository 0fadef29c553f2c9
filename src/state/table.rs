use std::{collections::BTreeMap, ops::RangeBounds};

/// An ordered map that remembers what changed, so that the store writes exactly those rows and no caller can forget to
/// say so.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    rows: BTreeMap<K, V>,
    changes: BTreeMap<K, Change<V>>,
}

/// What the store has to do about one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// Write the row as it stands in the table.
    Put,
    /// The row left memory but stays in the store, as history, in this last form.
    Archive(V),
    Delete,
}

impl<K: Ord + Clone, V> Table<K, V> {
    pub fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    pub fn contains(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.iter()
    }

    pub fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(range)
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.rows.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.rows.values()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The changes since the last call, in key order.
    pub fn take_changes(&mut self) -> BTreeMap<K, Change<V>> {
        std::mem::take(&mut self.changes)
    }

    /// Fills the table from the store: rows that need no writing back.
    pub fn load(&mut self, key: K, row: V) {
        self.rows.insert(key, row);
    }

    pub(super) fn insert(&mut self, key: K, row: V) {
        self.changes.insert(key.clone(), Change::Put);
        self.rows.insert(key, row);
    }

    pub(super) fn delete(&mut self, key: &K) -> Option<V> {
        let row = self.rows.remove(key)?;
        self.changes.insert(key.clone(), Change::Delete);
        Some(row)
    }

    /// Takes the row out of memory and leaves `last` in the store.
    pub(super) fn archive(&mut self, key: &K, last: V) {
        self.rows.remove(key);
        self.changes.insert(key.clone(), Change::Archive(last));
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { rows: BTreeMap::new(), changes: BTreeMap::new() }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Table<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}
