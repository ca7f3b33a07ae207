//! From what one entry says to a row of the final columns.

use crate::interning::{kind, Nodes};
use crate::keys::{key, Raw, KEYS, STATES};
use crate::values::{ensure, tag, Slot, Step, Unusual, Value};

const MAX_FRAMES: usize = 1024;
const MAX_GROUP_RANK: i64 = (1 << 31) - 1;
/// Elements of lists that any file may refer to, see `work_of` in `columns/rows.py`.
const SPARE_WORK: u64 = 1_000_000;

/// One call: numbers as recorded, and numbers of what is kept in the dictionaries.
#[derive(Clone, Copy)]
pub struct Row {
    pub record_id: i64,
    pub seq: i64,
    pub p2p_seq: i64,
    pub op_id: i64,
    pub created_ns: i64,
    pub started_ns: i64,
    pub completed_ns: i64,
    pub timeout_ms: i64,
    pub duration_ms: f64,
    pub name: i32,
    pub signature: i32,
    pub stack: i32,
    pub thread: i32,
    pub pg: i32,
    pub pg_id: i32,
    pub state: i8,
    pub retired: bool,
    pub is_p2p: bool,
}

/// The distinct values of one column, in order of first use, by number of string or node.
#[derive(Default)]
pub struct Distinct {
    pub list: Vec<i64>,
    of: Vec<i32>,
    /// Elements of lists that each of them refers to.
    pub sizes: Vec<u32>,
}

impl Distinct {
    #[inline(always)]
    fn number(&mut self, value: i64, size: impl FnOnce() -> u32) -> i32 {
        if value < 0 {
            return -1;
        }
        match self.of.get(value as usize) {
            Some(&number) if number >= 0 => number,
            _ => self.add(value, size()),
        }
    }

    #[cold]
    fn add(&mut self, value: i64, size: u32) -> i32 {
        let number = self.list.len() as i32;
        if self.of.len() <= value as usize {
            self.of.resize(2 * value as usize + 64, -1);
        }
        self.of[value as usize] = number;
        self.list.push(value);
        self.sizes.push(size);
        number
    }

    fn size(&self, number: i32) -> u64 {
        self.sizes.get(number as usize).map_or(0, |&size| u64::from(size))
    }
}

/// A group that a file's calls use, and the local id that they give it; Python reads two numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Pair {
    pub group: i64,
    pub local: i64,
}

/// Pairs of one file that are told apart; beyond them the rows have to be looked at.
pub const MAX_PAIRS: usize = 256;

/// The dictionaries of one thread's rows.
#[derive(Default)]
pub struct Dictionaries {
    pub names: Distinct,
    pub signatures: Distinct,
    pub stacks: Distinct,
    pub threads: Distinct,
    pub groups: Distinct,
    /// For each thread the file that has met it last, and which of that file's threads it is.
    met: Vec<(u64, i32)>,
}

/// What rows of one file share while it is read.
pub struct FileState {
    pub serial: u64,
    pub newest: i64,
    /// Elements of lists that its entries may still refer to.
    pub work_left: u64,
    /// Its threads in order of first use, as numbers of `Dictionaries::threads`.
    pub threads: Vec<i64>,
    /// Its groups with their local ids, each pair once, in order of first use.
    pub groups: Vec<Pair>,
    last_thread: (i64, i64, i32),
    last_signature: ([i64; 4], i32),
}

impl FileState {
    pub fn new(serial: u64, size: usize) -> Self {
        FileState {
            serial,
            newest: -1,
            work_left: 4 * size as u64 + SPARE_WORK,
            threads: Vec::new(),
            groups: Vec::new(),
            last_thread: (-9, -9, -1),
            last_signature: ([-9; 4], -1),
        }
    }
}

impl Dictionaries {
    /// Make the row of an entry; checks what makes a file unusual.
    pub fn row(&mut self, raw: &Raw, file: &mut FileState, nodes: &mut Nodes) -> Step<Row> {
        let mut row = Row {
            record_id: 0,
            seq: 0,
            p2p_seq: 0,
            op_id: 0,
            created_ns: 0,
            started_ns: 0,
            completed_ns: 0,
            timeout_ms: 0,
            duration_ms: 0.0,
            name: -1,
            signature: -1,
            stack: -1,
            thread: -1,
            pg: -1,
            pg_id: -1,
            state: 0,
            retired: false,
            is_p2p: false,
        };
        self.number(&mut row, raw, file, nodes)?;
        for key in [
            key::RECORD,
            key::PG_ID,
            key::SEQ,
            key::P2P_SEQ,
            key::OP,
            key::NAME,
            key::CREATED,
            key::DURATION,
            key::STATE,
            key::STARTED,
            key::COMPLETED,
            key::RETIRED,
            key::TIMEOUT,
            key::IS_P2P,
        ] {
            self.set(&mut row, key, raw[key])?;
        }
        self.set_group(&mut row, raw[key::GROUP], nodes)?;
        self.set_stack(&mut row, raw[key::FRAMES], nodes);
        self.settle(&row, file)?;
        Ok(row)
    }

    /// What is left to check once a row is filled: the order, and how much it refers to.
    #[inline(always)]
    pub fn settle(&self, row: &Row, file: &mut FileState) -> Step {
        ensure(row.record_id >= file.newest)?;
        file.newest = row.record_id;
        let work = self.stacks.size(row.stack) + self.signatures.size(row.signature);
        file.work_left = file.work_left.checked_sub(work).ok_or(Unusual)?;
        let pair = Pair { group: i64::from(row.pg), local: i64::from(row.pg_id) };
        if !file.groups.contains(&pair) && file.groups.len() <= MAX_PAIRS {
            file.groups.push(pair);
        }
        Ok(())
    }

    /// Set what one key says, where it is one value.
    #[inline(always)]
    pub fn set(&mut self, row: &mut Row, key: usize, value: i64) -> Step {
        match key {
            key::RECORD => row.record_id = value,
            key::PG_ID => {
                row.pg_id = if (0..=MAX_GROUP_RANK).contains(&value) { value as i32 } else { -1 }
            }
            key::SEQ => row.seq = value,
            key::P2P_SEQ => row.p2p_seq = value,
            key::OP => row.op_id = value,
            key::NAME => row.name = self.names.number(value, || 0),
            key::CREATED => row.created_ns = value,
            key::DURATION => row.duration_ms = f64::from_bits(value as u64),
            key::STARTED => row.started_ns = value,
            key::COMPLETED => row.completed_ns = value,
            key::RETIRED => row.retired = value != 0,
            key::TIMEOUT => row.timeout_ms = value,
            key::IS_P2P => row.is_p2p = value != 0,
            key::STATE => {
                let state = value - KEYS.len() as i64;
                ensure((0..STATES.len() as i64).contains(&state))?;
                row.state = state as i8;
            }
            _ => return Err(Unusual),
        }
        Ok(())
    }

    /// Set the stack: none, where it is no list or an empty one.
    #[inline(always)]
    pub fn set_stack(&mut self, row: &mut Row, node: i64, nodes: &Nodes) {
        row.stack = -1;
        if node < 0 {
            return;
        }
        let found = &nodes.all[node as usize];
        if found.kind != kind::DICT && found.length > 0 {
            let size = (found.length as usize).min(MAX_FRAMES) as u32;
            row.stack = self.stacks.number(node, || size);
        }
    }

    /// Set the group, which has to be a pair.
    #[inline(always)]
    pub fn set_group(&mut self, row: &mut Row, node: i64, nodes: &Nodes) -> Step {
        let found = nodes.all.get(node as usize).ok_or(Unusual)?;
        ensure(found.kind != kind::DICT && found.length == 2)?;
        row.pg = self.groups.number(node, || 0);
        Ok(())
    }

    /// Set what several keys say together: the signature, and the thread.
    #[inline(always)]
    pub fn number(
        &mut self,
        row: &mut Row,
        raw: &Raw,
        file: &mut FileState,
        nodes: &mut Nodes,
    ) -> Step {
        self.set_signature(row, raw, file, nodes)?;
        self.set_thread(row, raw, file, nodes)
    }

    #[inline(always)]
    pub fn set_signature(
        &mut self,
        row: &mut Row,
        raw: &Raw,
        file: &mut FileState,
        nodes: &mut Nodes,
    ) -> Step {
        let parts =
            [raw[key::IN_SIZES], raw[key::OUT_SIZES], raw[key::IN_DTYPES], raw[key::OUT_DTYPES]];
        if file.last_signature.0 != parts {
            let children = parts.map(|part| slot_of(tag::NODE, part));
            let node = nodes.intern(kind::SIGNATURE, &children)?;
            let number = self.signatures.number(node, || elements_of(&parts, nodes));
            file.last_signature = (parts, number);
        }
        row.signature = file.last_signature.1;
        Ok(())
    }

    #[inline(always)]
    pub fn set_thread(
        &mut self,
        row: &mut Row,
        raw: &Raw,
        file: &mut FileState,
        nodes: &mut Nodes,
    ) -> Step {
        let (name, id) = (raw[key::THREAD_NAME], raw[key::THREAD_ID]);
        row.thread = -1;
        if name < 0 {
            return Ok(());
        }
        if (file.last_thread.0, file.last_thread.1) != (name, id) {
            let children = [slot_of(tag::STRING, name), slot_of(tag::STRING, id)];
            let node = nodes.intern(kind::THREAD, &children)?;
            let thread = self.threads.number(node, || 0);
            file.last_thread = (name, id, self.of_file(thread, file));
        }
        row.thread = file.last_thread.2;
        Ok(())
    }

    /// Which of a file's threads this one is.
    fn of_file(&mut self, thread: i32, file: &mut FileState) -> i32 {
        let index = thread as usize;
        if self.met.len() <= index {
            self.met.resize(index + 1, (u64::MAX, -1));
        }
        if self.met[index].0 != file.serial {
            self.met[index] = (file.serial, file.threads.len() as i32);
            file.threads.push(i64::from(thread));
        }
        self.met[index].1
    }
}

/// A part of a node of our own making: -1 stands for none.
fn slot_of(tag: u8, number: i64) -> Slot {
    let value = if number < 0 { Value::NONE } else { Value::new(tag, number) };
    Slot { value, memo: crate::values::NO_SLOT }
}

/// Elements of lists that a signature refers to, see `elements_of` in `columns/rows.py`.
fn elements_of(parts: &[i64; 4], nodes: &Nodes) -> u32 {
    let listed = |value: Value| match value.is(tag::NODE) && nodes.kind_of(value.bits) != kind::DICT
    {
        true => nodes.children_of(value.bits),
        false => &[],
    };
    let part = |number: i64| match number < 0 {
        true => &[][..],
        false => listed(Value::new(tag::NODE, number)),
    };
    let [inputs, outputs, kinds, out_kinds] = *parts;
    let shapes = || part(inputs).iter().chain(part(outputs));
    let dimensions: usize = shapes().map(|&shape| listed(shape).len()).sum();
    let all = shapes().count() + dimensions + part(kinds).len() + part(out_kinds).len();
    all.min(i32::MAX as usize) as u32
}
