//! Many files on many threads: read, decoded, and written into the final columns.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::thread;

use crate::memory::Memory;
use crate::rows::Row;
use crate::values::{ensure, Step, Unusual};
use crate::{json, pickles};

/// What became of one file; Python reads it as 64-bit numbers.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Outcome {
    /// Whole, cut or unusual.
    pub status: i64,
    /// Which memory has decoded it.
    pub memory: i64,
    /// Its rows, pairs, threads and groups in use, counted from the first of its memory's batch.
    pub first_row: i64,
    pub rows: i64,
    pub first_top: i64,
    pub tops: i64,
    pub first_thread: i64,
    pub threads: i64,
    pub first_group: i64,
    pub groups: i64,
}

pub const WHOLE: i64 = 0;
pub const CUT: i64 = 1;
pub const UNUSUAL: i64 = 2;

/// Bytes that tell what kind of file it is.
const HEAD: usize = 512;

/// A file to decode: where it lies, or its bytes.
pub enum Source<'a> {
    File { path: &'a Path, size: u64 },
    Bytes(&'a [u8]),
}

impl Source<'_> {
    /// What it counts in the sharing out: its bytes, or at least one.
    fn weight(&self) -> u64 {
        match self {
            Source::File { size, .. } => (*size).max(1),
            Source::Bytes(bytes) => (bytes.len() as u64).max(1),
        }
    }
}

/// Decode files, each thread a run of them that has its share of the bytes.
pub fn decode(memories: &mut [Memory], sources: &[Source], outcomes: &mut [Outcome]) {
    let total: u64 = sources.iter().map(Source::weight).sum();
    let share = total / memories.len() as u64 + 1; // so that nothing is left over
    thread::scope(|scope| {
        let (mut sources, mut outcomes) = (sources, outcomes);
        let mut jobs = Vec::new();
        for (index, memory) in memories.iter_mut().enumerate() {
            let mut left = share;
            let fits = |source: &&Source| {
                let begun = left > 0;
                left = left.saturating_sub(source.weight());
                begun
            };
            let count = sources.iter().take_while(fits).count();
            let (mine, rest) = sources.split_at(count);
            let (my_outcomes, other) = std::mem::take(&mut outcomes).split_at_mut(count);
            sources = rest;
            outcomes = other;
            memory.next_batch();
            if count > 0 {
                jobs.push(move || decode_run(memory, index as i64, mine, my_outcomes));
            }
        }
        if let Some(mut last) = jobs.pop() {
            for job in jobs {
                scope.spawn(job);
            }
            last();
        }
    });
}

fn decode_run(memory: &mut Memory, index: i64, sources: &[Source], outcomes: &mut [Outcome]) {
    for (source, outcome) in sources.iter().zip(outcomes) {
        *outcome = decode_one(memory, source);
        outcome.memory = index;
    }
}

/// Decode one file; an unusual one leaves no rows and no pairs.
fn decode_one(memory: &mut Memory, source: &Source) -> Outcome {
    let (rows, tops) = (memory.rows.len(), memory.tops.len());
    let (threads, groups) = (memory.threads.len(), memory.groups.len());
    let status = match source {
        Source::Bytes(bytes) => decode_bytes(memory, bytes),
        Source::File { path, size } => {
            let mut buffer = std::mem::take(&mut memory.buffer);
            let status =
                read(path, *size, &mut buffer).and_then(|bytes| decode_bytes(memory, bytes));
            memory.buffer = buffer;
            status
        }
    };
    if status.is_err() {
        memory.rows.truncate(rows);
        memory.tops.truncate(tops);
        memory.threads.truncate(threads);
        memory.groups.truncate(groups);
    }
    Outcome {
        status: status.unwrap_or(UNUSUAL),
        memory: 0,
        first_row: rows as i64,
        rows: (memory.rows.len() - rows) as i64,
        first_top: tops as i64,
        tops: (memory.tops.len() - tops) as i64,
        first_thread: threads as i64,
        threads: (memory.threads.len() - threads) as i64,
        first_group: groups as i64,
        groups: (memory.groups.len() - groups) as i64,
    }
}

fn decode_bytes(memory: &mut Memory, bytes: &[u8]) -> Step<i64> {
    let mut file = memory.next_file(bytes.len());
    let status = if is_pickle(bytes) {
        let cut = pickles::decode(bytes, memory, &mut file)?;
        if cut {
            CUT
        } else {
            WHOLE
        }
    } else {
        ensure(json::is_json(bytes))?;
        json::decode(bytes, memory, &mut file)?;
        WHOLE
    };
    memory.threads.extend_from_slice(&file.threads);
    memory.groups.extend_from_slice(&file.groups);
    Ok(status)
}

/// Read a file that is as large as it was when it was found, and still a file.
fn read<'a>(path: &Path, size: u64, buffer: &'a mut Vec<u8>) -> Step<&'a [u8]> {
    let size = usize::try_from(size).map_err(|_| Unusual)?;
    let mut file = File::open(path).map_err(|_| Unusual)?;
    let found = file.metadata().map_err(|_| Unusual)?;
    ensure(found.is_file() && found.len() == size as u64)?;
    if buffer.len() < size {
        buffer.clear();
        buffer.try_reserve_exact(size + size / 8).map_err(|_| Unusual)?;
        buffer.resize(size + size / 8, 0);
    }
    let bytes = &mut buffer[..size];
    let (head, rest) = bytes.split_at_mut(size.min(HEAD));
    file.read_exact(head).map_err(|_| Unusual)?;
    ensure(is_pickle(head) || json::is_json(head))?;
    file.read_exact(rest).map_err(|_| Unusual)?;
    Ok(bytes)
}

fn is_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

/// Numbers of the case by the numbers of one memory.
#[derive(Clone, Copy)]
pub struct Numbers<'a> {
    pub names: &'a [i32],
    pub signatures: &'a [i32],
    pub stacks: &'a [i32],
    pub groups: &'a [i32],
    /// For each thread of each file of the batch.
    pub threads: &'a [i32],
}

macro_rules! columns {
    ($($name:ident: $kind:ty = $make:expr),* $(,)?) => {
        /// Columns of the case, or a run of their rows.
        pub struct Columns<'a> { $(pub $name: &'a mut [$kind],)* }

        impl<'a> Columns<'a> {
            /// The first rows, and the others.
            fn split(self, count: usize) -> (Self, Self) {
                $(let $name = self.$name.split_at_mut(count);)*
                (Columns { $($name: $name.0,)* }, Columns { $($name: $name.1,)* })
            }

            /// Write rows; `first_thread` is where their file's threads begin.
            fn write(&mut self, rows: &[Row], numbers: &Numbers, first_thread: usize) -> Step {
                $(let $name = &mut self.$name[..rows.len()];)*
                for (index, row) in rows.iter().enumerate() {
                    $({
                        let make: fn(&Row, &Numbers, usize) -> Step<$kind> = $make;
                        $name[index] = make(row, numbers, first_thread)?;
                    })*
                }
                Ok(())
            }
        }
    };
}

columns! {
    name: i32 = |row, numbers, _| number(numbers.names, row.name),
    signature: i32 = |row, numbers, _| number(numbers.signatures, row.signature),
    stack: i32 = |row, numbers, _| number(numbers.stacks, row.stack),
    thread: i32 = |row, numbers, first| thread_number(numbers.threads, row.thread, first),
    record_id: i64 = |row, _, _| Ok(row.record_id),
    seq: i64 = |row, _, _| Ok(row.seq),
    p2p_seq: i64 = |row, _, _| Ok(row.p2p_seq),
    op_id: i64 = |row, _, _| Ok(row.op_id),
    state: i8 = |row, _, _| Ok(row.state),
    retired: u8 = |row, _, _| Ok(u8::from(row.retired)),
    is_p2p: u8 = |row, _, _| Ok(u8::from(row.is_p2p)),
    created_ns: i64 = |row, _, _| Ok(row.created_ns),
    started_ns: i64 = |row, _, _| Ok(row.started_ns),
    completed_ns: i64 = |row, _, _| Ok(row.completed_ns),
    duration_ms: f64 = |row, _, _| Ok(row.duration_ms),
    timeout_ms: i64 = |row, _, _| Ok(row.timeout_ms),
    pg: i32 = |row, numbers, _| number(numbers.groups, row.pg),
    pg_id: i32 = |row, _, _| Ok(row.pg_id),
}

#[inline(always)]
fn number(table: &[i32], index: i32) -> Step<i32> {
    match index {
        -1 => Ok(-1),
        _ => table.get(index as usize).copied().ok_or(Unusual),
    }
}

#[inline(always)]
fn thread_number(table: &[i32], index: i32, first: usize) -> Step<i32> {
    match index {
        -1 => Ok(-1),
        _ => table.get(first + index as usize).copied().ok_or(Unusual),
    }
}

/// Write the rows of a batch, each thread those that it has decoded.
pub fn write(
    memories: &[Memory],
    outcomes: &[Outcome],
    columns: Columns,
    numbers: &[Numbers],
) -> Step {
    thread::scope(|scope| {
        let (mut columns, mut outcomes) = (columns, outcomes);
        let mut jobs = Vec::new();
        for (index, memory) in memories.iter().enumerate() {
            let count = outcomes.iter().take_while(|one| one.memory == index as i64).count();
            let (mine, rest) = outcomes.split_at(count);
            let (my_columns, others) = columns.split(memory.rows.len());
            outcomes = rest;
            columns = others;
            let numbers = numbers[index];
            jobs.push(move || write_run(memory, mine, my_columns, &numbers));
        }
        let last = jobs.pop().ok_or(Unusual)?;
        let running: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        last()?;
        running.into_iter().try_for_each(|job| job.join().unwrap_or(Err(Unusual)))
    })
}

const BLOCK: usize = 256;

fn write_run(memory: &Memory, files: &[Outcome], columns: Columns, numbers: &Numbers) -> Step {
    let mut columns = columns;
    for file in files {
        let rows = &memory.rows[file.first_row as usize..(file.first_row + file.rows) as usize];
        for block in rows.chunks(BLOCK) {
            let (mut here, rest) = columns.split(block.len());
            here.write(block, numbers, file.first_thread as usize)?;
            columns = rest;
        }
    }
    Ok(())
}
