//! A dump as JSON, read into the same rows and containers as a pickled one.
//!
//! Only what Python's `json` reads in exactly one way is taken; whatever else, a file that was cut
//! among it, is unusual and left to the Python reader. What follows the value is not looked at.

use crate::grammar::MAX_DEPTH;
use crate::interning::kind;
use crate::keys::key;
use crate::memory::{Memory, Top};
use crate::rows::FileState;
use crate::values::{ensure, tag, Step, Unusual};

/// Decode one file into the rows and pairs of a memory.
pub fn decode(bytes: &[u8], memory: &mut Memory, file: &mut FileState) -> Step {
    let mut reader = Reader { bytes, memory, file, position: 0, scratch: Vec::new() };
    reader.dump()
}

/// Whether a file begins like a dump in JSON.
pub fn is_json(bytes: &[u8]) -> bool {
    bytes.iter().find(|byte| !is_space(**byte)) == Some(&b'{')
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

struct Reader<'a> {
    bytes: &'a [u8],
    memory: &'a mut Memory,
    file: &'a mut FileState,
    position: usize,
    /// A string whose escapes were replaced.
    scratch: Vec<u8>,
}

impl Reader<'_> {
    fn dump(&mut self) -> Step {
        let mut has_entries = false;
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            return Ok(());
        }
        loop {
            let name = self.key()?;
            if name == key::ENTRIES as i64 {
                ensure(!has_entries)?;
                has_entries = true;
                self.entries()?;
            } else {
                self.value(0)?;
                let value = self.memory.stack.pop().ok_or(Unusual)?.value;
                self.memory.tops.push(Top { key: name, value });
            }
            if !self.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    fn entries(&mut self) -> Step {
        self.expect(b'[')?;
        if self.peek()? == b']' {
            self.position += 1;
            return Ok(());
        }
        loop {
            ensure(self.peek()? == b'{')?;
            self.pairs(0)?;
            self.memory.add_row(0, self.file)?;
            self.memory.stack.clear();
            if !self.goes_on(b']')? {
                return Ok(());
            }
        }
    }

    /// Push the keys and values of an object.
    fn pairs(&mut self, depth: usize) -> Step {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            self.position += 1;
            return Ok(());
        }
        loop {
            let name = self.key()?;
            self.memory.push(tag::STRING, name);
            self.value(depth + 1)?;
            if !self.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    /// Push a value.
    fn value(&mut self, depth: usize) -> Step {
        ensure(depth < MAX_DEPTH)?;
        let first = self.memory.stack.len();
        match self.peek()? {
            b'"' => {
                let text = self.string()?;
                self.memory.push(tag::STRING, text);
            }
            b'{' => {
                self.pairs(depth)?;
                self.close(kind::DICT, first)?;
            }
            b'[' => {
                self.items(depth)?;
                self.close(kind::LIST, first)?;
            }
            b't' => self.word(b"true", tag::BOOL, 1)?,
            b'f' => self.word(b"false", tag::BOOL, 0)?,
            b'n' => self.word(b"null", tag::NONE, 0)?,
            _ => self.number()?,
        }
        Ok(())
    }

    fn items(&mut self, depth: usize) -> Step {
        self.expect(b'[')?;
        if self.peek()? == b']' {
            self.position += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            if !self.goes_on(b']')? {
                return Ok(());
            }
        }
    }

    fn close(&mut self, kind: i64, first: usize) -> Step {
        let node = self.memory.container(kind, first)?;
        self.memory.stack.truncate(first);
        self.memory.push(tag::NODE, node);
        Ok(())
    }

    fn word(&mut self, word: &[u8], tag: u8, bits: i64) -> Step {
        ensure(self.bytes[self.position..].starts_with(word))?;
        self.position += word.len();
        self.memory.push(tag, bits);
        Ok(())
    }

    fn number(&mut self) -> Step {
        let start = self.position;
        self.position += usize::from(self.at() == Some(b'-'));
        let first = self.at().ok_or(Unusual)?;
        let digits = self.digits()?;
        ensure(first != b'0' || digits == 1)?;
        let mut is_float = false;
        if self.at() == Some(b'.') {
            is_float = true;
            self.position += 1;
            self.digits()?;
        }
        if matches!(self.at(), Some(b'e' | b'E')) {
            is_float = true;
            self.position += 1;
            self.position += usize::from(matches!(self.at(), Some(b'+' | b'-')));
            self.digits()?;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.position]).map_err(|_| Unusual)?;
        if is_float {
            let number: f64 = text.parse().map_err(|_| Unusual)?;
            self.memory.push(tag::FLOAT, number.to_bits() as i64);
        } else {
            self.memory.push(tag::INT, text.parse().map_err(|_| Unusual)?);
        }
        Ok(())
    }

    fn digits(&mut self) -> Step<usize> {
        let rest = &self.bytes[self.position..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        ensure(count > 0)?;
        self.position += count;
        Ok(count)
    }

    fn key(&mut self) -> Step<i64> {
        ensure(self.peek()? == b'"')?;
        let name = self.string()?;
        self.expect(b':')?;
        Ok(name)
    }

    /// Number of the string that begins here.
    fn string(&mut self) -> Step<i64> {
        self.position += 1;
        let rest = &self.bytes[self.position..];
        let plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
        let length = rest.iter().position(|byte| !plain(byte)).ok_or(Unusual)?;
        if rest[length] != b'"' {
            return self.escaped();
        }
        self.position += length + 1;
        self.interned(&rest[..length])
    }

    fn interned(&mut self, text: &[u8]) -> Step<i64> {
        ensure(text.is_ascii() || std::str::from_utf8(text).is_ok())?;
        Ok(self.memory.texts.intern(text))
    }

    /// The same, for a string that has escapes.
    fn escaped(&mut self) -> Step<i64> {
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        loop {
            let byte = self.next()?;
            match byte {
                b'"' => break,
                b'\\' => self.escape(&mut text)?,
                0..=0x1f => return Err(Unusual),
                _ => text.push(byte),
            }
        }
        let number = self.interned(&text);
        self.scratch = text;
        number
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Step {
        let byte = match self.next()? {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.code_point(text),
            _ => return Err(Unusual),
        };
        text.push(byte);
        Ok(())
    }

    fn code_point(&mut self, text: &mut Vec<u8>) -> Step {
        let mut point = self.four_digits()?;
        if (0xd800..0xdc00).contains(&point) {
            ensure(self.next()? == b'\\' && self.next()? == b'u')?;
            let low = self.four_digits()?;
            ensure((0xdc00..0xe000).contains(&low))?;
            point = 0x1_0000 + ((point - 0xd800) << 10) + (low - 0xdc00);
        }
        let letter = char::from_u32(point).ok_or(Unusual)?;
        text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn four_digits(&mut self) -> Step<u32> {
        (0..4).try_fold(0, |number, _| {
            let digit = char::from(self.next()?).to_digit(16).ok_or(Unusual)?;
            Ok(number << 4 | digit)
        })
    }

    /// Whether a comma follows rather than the end of the container.
    fn goes_on(&mut self, end: u8) -> Step<bool> {
        let byte = self.peek()?;
        ensure(byte == b',' || byte == end)?;
        self.position += 1;
        Ok(byte == b',')
    }

    fn expect(&mut self, byte: u8) -> Step {
        ensure(self.peek()? == byte)?;
        self.position += 1;
        Ok(())
    }

    /// The next byte that is no white space, which stays.
    #[inline(always)]
    fn peek(&mut self) -> Step<u8> {
        loop {
            match self.at() {
                Some(byte) if is_space(byte) => self.position += 1,
                found => return found.ok_or(Unusual),
            }
        }
    }

    #[inline(always)]
    fn at(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn next(&mut self) -> Step<u8> {
        let byte = self.at().ok_or(Unusual)?;
        self.position += 1;
        Ok(byte)
    }
}
