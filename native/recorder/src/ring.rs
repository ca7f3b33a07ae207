//! Sends and receives of the quick way, as numbers in memory that is there already.
//!
//! Python objects become of them when somebody wants to see them. An entry is open from the call
//! until somebody has waited for its Work, or the Work has gone.

use std::collections::HashMap;
use std::rc::Rc;

use crate::facts::Mixing;
use crate::places::Known;
use crate::python::{integer, nothing, truth, tuple_of, untruth, Owned, Ref};

#[derive(Clone, Copy, PartialEq)]
pub enum State {
    Scheduled,
    Started,
    Completed,
}

#[derive(Clone)]
pub struct Entry {
    pub known: Rc<Known>,
    /// Shape and dtype of the tensor, as Python's recorder keeps them; none until the backend has
    /// taken the call.
    pub facts: Option<Owned>,
    pub number: i64,
    pub seq: i64,
    pub p2p_seq: i64,
    pub tag: i64,
    pub thread: i64,
    pub created_ns: i64,
    pub started_ns: i64,
    pub completed_ns: i64,
    pub wait_ns: i64,
    pub state: State,
    pub is_abandoned: bool,
    /// Tells when the Work goes; none while nothing is followed.
    pub weak: Option<Owned>,
    /// Address of the Work, as long as `weak` is there.
    work: usize,
}

impl Entry {
    pub fn new(known: Rc<Known>) -> Self {
        Entry {
            known,
            facts: None,
            number: 0,
            seq: 0,
            p2p_seq: 0,
            tag: 0,
            thread: 0,
            created_ns: 0,
            started_ns: 0,
            completed_ns: 0,
            wait_ns: 0,
            state: State::Scheduled,
            is_abandoned: false,
            weak: None,
            work: 0,
        }
    }

    /// What `quick.py` makes an entry of. Python may run anything meanwhile: no ring is borrowed.
    pub unsafe fn row(&self) -> Option<Owned> {
        unsafe {
            let (name, stack) = self.known.entry.as_ref()?;
            let facts = match &self.facts {
                Some(facts) => facts.clone(),
                None => nothing()?,
            };
            let is_abandoned = if self.is_abandoned { truth() } else { untruth() };
            tuple_of(vec![
                self.known.channel.clone(),
                name.clone(),
                facts,
                stack.clone(),
                integer(self.thread)?,
                integer(self.number)?,
                integer(self.seq)?,
                integer(self.p2p_seq)?,
                integer(self.tag)?,
                integer(self.created_ns)?,
                integer(self.started_ns)?,
                integer(self.completed_ns)?,
                integer(self.wait_ns)?,
                integer(self.state as i64)?,
                Owned::of(is_abandoned),
            ])
        }
    }
}

/// The last entries. A serial number is that of an entry in here.
pub struct Ring {
    entries: Vec<Option<Entry>>,
    size: usize,
    made: usize,
    /// Serial numbers by the address of the Work that is followed.
    open: HashMap<usize, usize, Mixing>,
}

impl Ring {
    pub fn new(size: usize) -> Self {
        Ring { entries: Vec::new(), size: size.max(1), made: 0, open: HashMap::default() }
    }

    /// Keep an entry; the oldest makes room, and is given back to be dropped.
    pub fn push(&mut self, entry: Entry) -> (usize, Option<Entry>) {
        let serial = self.made;
        self.made += 1;
        if self.entries.len() < self.size {
            self.entries.push(Some(entry));
            return (serial, None);
        }
        let before = self.entries[serial % self.size].replace(entry);
        if let Some(before) = &before {
            self.forget(before.work, serial - self.size);
        }
        (serial, before)
    }

    /// The entry of a serial number, if it is still here.
    pub fn at(&mut self, serial: usize) -> Option<&mut Entry> {
        if self.made - serial > self.size {
            return None;
        }
        self.entries.get_mut(serial % self.size)?.as_mut()
    }

    /// The open entry of a Work.
    pub fn of(&self, work: Ref) -> Option<usize> {
        if self.open.is_empty() {
            return None;
        }
        self.open.get(&(work as usize)).copied()
    }

    /// Follow the Work of an entry.
    pub fn follow(&mut self, serial: usize, work: Ref, weak: Owned, now: i64) {
        let address = work as usize;
        if let Some(entry) = self.at(serial) {
            entry.state = State::Started;
            entry.started_ns = now;
            entry.work = address;
            entry.weak = Some(weak);
            self.open.insert(address, serial);
        }
    }

    /// Follow it no longer; what it was followed by is given back to be dropped.
    pub fn close(&mut self, serial: usize) -> Option<Owned> {
        let entry = self.at(serial)?;
        let weak = entry.weak.take();
        let work = entry.work;
        self.forget(work, serial);
        weak
    }

    fn forget(&mut self, work: usize, serial: usize) {
        if self.open.get(&work) == Some(&serial) {
            self.open.remove(&work);
        }
    }

    /// The call has ended well, as somebody saw just now.
    pub fn end(&mut self, serial: usize, now: i64) -> Option<Owned> {
        if let Some(entry) = self.at(serial) {
            if entry.state != State::Completed && !entry.is_abandoned {
                entry.state = State::Completed;
                entry.completed_ns = now;
            }
        }
        self.close(serial)
    }

    /// The Work that a weak reference was to has gone, and nobody can wait for it.
    pub fn abandon(&mut self, weak: Ref) -> Option<Owned> {
        let is_it = |entry: &Entry| entry.weak.as_ref().map_or(false, |own| own.get() == weak);
        let serial = self.open.values().copied().find(|serial| {
            let entry = self.entries.get(serial % self.size);
            entry.and_then(Option::as_ref).map_or(false, is_it)
        })?;
        if let Some(entry) = self.at(serial) {
            entry.is_abandoned = true;
        }
        self.close(serial)
    }

    /// Take an entry out.
    pub fn take(&mut self, serial: usize) -> Option<Entry> {
        self.at(serial)?;
        let entry = self.entries.get_mut(serial % self.size)?.take()?;
        self.forget(entry.work, serial);
        Some(entry)
    }

    /// A copy of all entries, in any order.
    pub fn copied(&self) -> Vec<Entry> {
        self.entries.iter().flatten().cloned().collect()
    }

    /// A copy of those that are open.
    pub fn opened(&self) -> Vec<Owned> {
        let open = self.entries.iter().flatten();
        open.filter_map(|entry| entry.weak.clone()).collect()
    }
}
