//! Writes a message into a buffer of the caller, within a size limit.

use crate::Truncated;
use crate::codes::{Class, Rtype};
use crate::message::{Flags, HEADER_LEN, Message, OPT_LEN, Opt, Question, Section};
use crate::name::NameBuf;

/// Largest offset of a compression pointer: 14 bits (RFC 1035 section 4.1.4).
const POINTER_MAX: u16 = 0x3fff;

/// Offset of the name of the question: directly after the header.
const QUESTION_AT: u16 = 12;

/// The name of the root, the owner of OPT records.
const ROOT: [u8; 1] = [0];

/// Owner of a record to be written.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// The name of the question, as a compression pointer.
    Question,
    /// The name at this offset of the message, as a compression pointer.
    At(u16),
    /// Any name, uncompressed.
    Name(&'a NameBuf),
    /// The octets of a name as written into the message: labels, then the root label or a
    /// compression pointer to an earlier name. They are not checked.
    Wire(&'a [u8]),
}

/// A message under construction. Its content is valid after every call, including failed ones.
///
/// Calls follow the order of the message: [`Builder::header`], at most one question, then the
/// records, section by section. The OPT record is an exception: [`Builder::opt`] reserves space for
/// it at any time, and [`Builder::finish`] writes it as the last record, so that neither records
/// nor [`Builder::truncate`] remove it.
#[derive(Debug)]
pub struct Builder<'a> {
    buf: &'a mut [u8],
    limit: usize,
    len: usize,
    records_at: usize,
    id: u16,
    flags: Flags,
    /// Offset of the first additional record, and the number of additional records before it.
    additional_at: Option<(usize, u16)>,
    counts: [u16; 4],
    section: Section,
    opt: Option<Opt<'a>>,
}

impl<'a> Builder<'a> {
    /// Starts a message of at most `limit` octets in `buf`, with ID and flags zero. The rest of
    /// `buf` is not changed. Returns an error if the header does not fit.
    pub fn new(buf: &'a mut [u8], limit: usize) -> Result<Self, Truncated> {
        let limit = limit.min(buf.len());
        if limit < HEADER_LEN {
            return Err(Truncated);
        }
        Ok(Self {
            buf,
            limit,
            len: HEADER_LEN,
            records_at: HEADER_LEN,
            id: 0,
            flags: Flags::default(),
            additional_at: None,
            counts: [0; 4],
            section: Section::Answer,
            opt: None,
        })
    }

    /// Sets ID and flags; may be called more than once.
    pub fn header(&mut self, id: u16, flags: Flags) {
        (self.id, self.flags) = (id, flags);
    }

    /// Writes the question.
    ///
    /// # Panics
    ///
    /// If there is a question or a record already.
    pub fn question(
        &mut self,
        name: &NameBuf,
        rtype: Rtype,
        class: Class,
    ) -> Result<(), Truncated> {
        let ([t0, t1], [c0, c1]) = (rtype.0.to_be_bytes(), class.0.to_be_bytes());
        self.question_parts([name.as_wire(), &[t0, t1, c0, c1]])
    }

    /// Copies the question of another message unchanged.
    ///
    /// # Panics
    ///
    /// If there is a question or a record already.
    pub fn question_raw(&mut self, question: &Question<'_>) -> Result<(), Truncated> {
        self.question_parts([question.octets()])
    }

    /// Octets that are left for records.
    pub fn room(&self) -> usize {
        self.limit - self.len
    }

    /// Octets written so far: the offset of the next record.
    pub fn position(&self) -> usize {
        self.len
    }

    /// Adds a record to a section.
    ///
    /// # Panics
    ///
    /// If `section` precedes that of the previous record, or if an [`Owner`] points to no name.
    pub fn record(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        rtype: Rtype,
        class: Class,
        ttl: u32,
        rdata: &[u8],
    ) -> Result<(), Truncated> {
        self.record_parts(section, owner, rtype, class, ttl, [rdata])
    }

    /// Like [`Builder::record`], with the data in parts.
    ///
    /// # Panics
    ///
    /// As [`Builder::record`].
    pub fn record_parts<const N: usize>(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        rtype: Rtype,
        class: Class,
        ttl: u32,
        rdata: [&[u8]; N],
    ) -> Result<(), Truncated> {
        assert!(
            section >= self.section,
            "records must be added section by section"
        );
        let pointer;
        let owner = match owner {
            Owner::Question => {
                assert!(
                    self.records_at > HEADER_LEN,
                    "there is no question to point at"
                );
                pointer = pointer_to(QUESTION_AT);
                &pointer[..]
            }
            Owner::At(offset) => {
                assert!(
                    offset >= QUESTION_AT && usize::from(offset) < self.len,
                    "a pointer leads to a name of the message"
                );
                pointer = pointer_to(offset);
                &pointer[..]
            }
            Owner::Name(name) => name.as_wire(),
            Owner::Wire(octets) => octets,
        };
        let rdata_len: usize = rdata.iter().map(|part| part.len()).sum();
        let rdata_len = u16::try_from(rdata_len).map_err(|_| Truncated)?;
        let count = self.counts[1 + section as usize]
            .checked_add(1)
            .ok_or(Truncated)?;
        let record_at = self.len;
        let fixed = fixed(rtype, class, ttl, rdata_len);
        self.reserve(owner.len() + fixed.len() + usize::from(rdata_len))?;
        self.put(owner);
        self.put(&fixed);
        for part in rdata {
            self.put(part);
        }
        if section == Section::Additional {
            self.additional_at.get_or_insert((record_at, count - 1));
        }
        self.section = section;
        self.counts[1 + section as usize] = count;
        Ok(())
    }

    /// Copies the records of another message up to octet `end` unchanged, with compressed names:
    /// its answer and authority sections and `additionals` additional records, none of them OPT.
    /// The names in both questions must be equal except for case; otherwise names that are
    /// compressed to them change.
    ///
    /// # Panics
    ///
    /// If there is a record already, or if the question section differs in length from that of
    /// `other`: compression pointers would be wrong.
    pub fn records_raw(
        &mut self,
        other: &Message<'_>,
        end: usize,
        additionals: u16,
    ) -> Result<(), Truncated> {
        assert!(
            self.len == self.records_at,
            "whole sections must come before records"
        );
        let question_end = other.question().map_or(HEADER_LEN, |q| q.range().end);
        assert!(
            self.records_at == question_end,
            "the records must keep their place"
        );
        self.append([&other.bytes()[question_end..end]])?;
        self.counts[1..].copy_from_slice(&[other.ancount(), other.nscount(), additionals]);
        self.section = Section::Additional;
        Ok(())
    }

    /// Reserves space for an OPT record, which [`Builder::finish`] writes. A second call replaces
    /// the first.
    pub fn opt(&mut self, opt: Opt<'a>) -> Result<(), Truncated> {
        let room_before = self.opt_len();
        let room = OPT_LEN + opt.options.len();
        if opt.options.len() > usize::from(u16::MAX) || self.len + room > self.limit + room_before {
            return Err(Truncated);
        }
        self.limit = self.limit + room_before - room;
        self.opt = Some(opt);
        Ok(())
    }

    /// Drops the additional records that were added one by one, except OPT: they can be omitted
    /// without setting TC (RFC 2181 section 9).
    pub fn drop_additional(&mut self) {
        if let Some((at, count)) = self.additional_at.take() {
            self.len = at;
            self.counts[3] = count;
        }
    }

    /// Drops all records, keeps the question and the OPT record, and sets TC.
    pub fn truncate(&mut self) {
        self.len = self.records_at;
        self.additional_at = None;
        self.counts[1..].fill(0);
        self.section = Section::Answer;
        self.flags = self.flags.with_tc(true);
    }

    /// Ends the message and returns its length in octets.
    pub fn finish(mut self) -> usize {
        if let Some(opt) = self.opt.take() {
            self.limit += OPT_LEN + opt.options.len();
            self.append_opt(&opt);
        }
        let [questions, answers, authorities, additionals] = self.counts;
        let (id, flags) = (self.id, self.flags.0);
        let words = [id, flags, questions, answers, authorities, additionals];
        let (places, _) = self.buf[..HEADER_LEN].as_chunks_mut();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        self.len
    }

    fn question_parts<const N: usize>(&mut self, parts: [&[u8]; N]) -> Result<(), Truncated> {
        assert!(
            self.len == HEADER_LEN,
            "the question must come first and once"
        );
        self.append(parts)?;
        self.records_at = self.len;
        self.counts[0] = 1;
        Ok(())
    }

    fn append_opt(&mut self, opt: &Opt<'_>) {
        let [high, low] = if opt.do_bit { Opt::DO } else { 0 }.to_be_bytes();
        let ttl = u32::from_be_bytes([opt.ext_rcode, opt.version, high, low]);
        let options_len = u16::try_from(opt.options.len()).unwrap_or_default();
        let fixed = fixed(Rtype::OPT, Class(opt.udp_size), ttl, options_len);
        let written = self.append([&ROOT, &fixed, opt.options]);
        // Its space is reserved: it is omitted only if the count is full.
        if let (Ok(()), Some(count)) = (written, self.counts[3].checked_add(1)) {
            self.counts[3] = count;
        }
    }

    fn opt_len(&self) -> usize {
        self.opt.map_or(0, |opt| OPT_LEN + opt.options.len())
    }

    /// Writes all parts, or none if they do not all fit.
    #[inline]
    fn append<const N: usize>(&mut self, parts: [&[u8]; N]) -> Result<(), Truncated> {
        self.reserve(parts.iter().map(|part| part.len()).sum())?;
        for part in parts {
            self.put(part);
        }
        Ok(())
    }

    /// Checks that `len` octets fit.
    #[inline]
    fn reserve(&self, len: usize) -> Result<(), Truncated> {
        (len <= self.limit - self.len)
            .then_some(())
            .ok_or(Truncated)
    }

    /// Writes octets, which must fit.
    #[inline]
    fn put(&mut self, octets: &[u8]) {
        let end = self.len + octets.len();
        self.buf[self.len..end].copy_from_slice(octets);
        self.len = end;
    }
}

/// The fields between the owner of a record and its data.
fn fixed(rtype: Rtype, class: Class, ttl: u32, rdata_len: u16) -> [u8; 10] {
    let ([t0, t1], [c0, c1]) = (rtype.0.to_be_bytes(), class.0.to_be_bytes());
    let ([s0, s1, s2, s3], [l0, l1]) = (ttl.to_be_bytes(), rdata_len.to_be_bytes());
    [t0, t1, c0, c1, s0, s1, s2, s3, l0, l1]
}

fn pointer_to(offset: u16) -> [u8; 2] {
    assert!(
        offset <= POINTER_MAX,
        "a pointer reaches no further than 16383"
    );
    (0xc000 | offset).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::Rcode;

    fn name(text: &str) -> NameBuf {
        text.parse().unwrap()
    }

    const OPT: Opt<'_> = Opt {
        udp_size: 1232,
        ext_rcode: 1,
        version: 0,
        do_bit: true,
        options: &[],
    };

    #[test]
    fn response_has_the_octets_of_rfc_1035() {
        let mut buf = [0xff; 512];
        let mut reply = Builder::new(&mut buf, 512).unwrap();
        reply.header(0x1234, Flags(0x8400).with_rcode(Rcode::NXDOMAIN));
        reply.opt(OPT).unwrap();
        reply
            .question(&name("wWw.test"), Rtype::A, Class::IN)
            .unwrap();
        reply
            .record(
                Section::Answer,
                Owner::Question,
                Rtype::A,
                Class::IN,
                60,
                &[192, 0, 2, 1],
            )
            .unwrap();
        reply
            .record(
                Section::Authority,
                Owner::At(16),
                Rtype::NS,
                Class::IN,
                1,
                b"\0",
            )
            .unwrap();
        reply
            .record(
                Section::Additional,
                Owner::Name(&name("ns")),
                Rtype::A,
                Class::IN,
                2,
                b"abcd",
            )
            .unwrap();
        let len = reply.finish();
        let expected = b"\x12\x34\x84\x03\0\x01\0\x01\0\x01\0\x02\
            \x03wWw\x04test\0\0\x01\0\x01\
            \xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01\
            \xc0\x10\0\x02\0\x01\0\0\0\x01\0\x01\0\
            \x02ns\0\0\x01\0\x01\0\0\0\x02\0\x04abcd\
            \0\0\x29\x04\xd0\x01\0\x80\0\0\0";
        assert_eq!(&buf[..len], expected);
        assert_eq!(buf[len], 0xff);
    }

    #[test]
    fn a_record_that_does_not_fit_leaves_the_message_unchanged() {
        let mut buf = [0; 512];
        let question = name("a");
        // Header 12, question 7, OPT 11, and one octet less than the record needs.
        let mut reply = Builder::new(&mut buf, 12 + 7 + 11 + 15).unwrap();
        reply.question(&question, Rtype::A, Class::IN).unwrap();
        reply.opt(OPT).unwrap();
        let add = |reply: &mut Builder<'_>, rdata: &[u8]| {
            reply.record(
                Section::Answer,
                Owner::Question,
                Rtype::A,
                Class::IN,
                0,
                rdata,
            )
        };
        assert_eq!(add(&mut reply, &[1, 2, 3, 4]), Err(Truncated));
        assert_eq!(add(&mut reply, &[1, 2, 3]), Ok(()));
        assert_eq!(add(&mut reply, &[]), Err(Truncated));
        let len = reply.finish();
        assert_eq!(len, 45);
        let message = Message::parse(&buf[..len]).unwrap();
        assert_eq!(message.records().filter(Result::is_ok).count(), 2);
        assert_eq!(message.opt(), Ok(Some(OPT)));
        assert!(!message.tc());
    }

    #[test]
    fn the_additional_section_can_be_dropped_alone() {
        let mut buf = [0; 200];
        let mut reply = Builder::new(&mut buf, 200).unwrap();
        reply.question(&name("a"), Rtype::A, Class::IN).unwrap();
        reply.opt(OPT).unwrap();
        reply.drop_additional();
        let add = |reply: &mut Builder<'_>, section| {
            let owner = Owner::Wire(b"\x01b\xc0\x0c");
            let data: [&[u8]; 3] = [b"ab", b"", b"c"];
            reply.record_parts(section, owner, Rtype::TXT, Class::IN, 1, data)
        };
        add(&mut reply, Section::Answer).unwrap();
        let after_answer = reply.position();
        assert_eq!(after_answer, 12 + 7 + 4 + 10 + 3);
        reply.drop_additional();
        assert_eq!(reply.position(), after_answer);
        add(&mut reply, Section::Additional).unwrap();
        add(&mut reply, Section::Additional).unwrap();
        reply.drop_additional();
        assert_eq!(reply.position(), after_answer);
        let len = reply.finish();
        let message = Message::parse(&buf[..len]).unwrap();
        assert_eq!((message.ancount(), message.arcount()), (1, 1));
        assert_eq!(message.opt(), Ok(Some(OPT)));
        let record = message.records().next().unwrap().unwrap();
        assert_eq!(record.name.to_string(), "b.a.");
        assert_eq!(record.rdata, b"abc");
        assert!(!message.tc());
    }

    #[test]
    fn truncation_keeps_the_question_and_opt_and_sets_tc() {
        let mut buf = [0; 100];
        let mut reply = Builder::new(&mut buf, 100).unwrap();
        reply.header(1, Flags(0x8000));
        reply.opt(OPT).unwrap();
        reply.question(&name("a"), Rtype::A, Class::IN).unwrap();
        reply
            .record(
                Section::Additional,
                Owner::Question,
                Rtype::TXT,
                Class::IN,
                0,
                &[0; 40],
            )
            .unwrap();
        reply.truncate();
        reply
            .record(
                Section::Answer,
                Owner::Question,
                Rtype::TXT,
                Class::IN,
                0,
                &[0; 4],
            )
            .unwrap();
        reply.truncate();
        let len = reply.finish();
        assert_eq!(len, 12 + 7 + 11);
        let message = Message::parse(&buf[..len]).unwrap();
        assert!(message.tc() && message.qr());
        assert_eq!(message.question().unwrap().name.to_string(), "a.");
        assert_eq!((message.ancount(), message.arcount()), (0, 1));
        assert_eq!(message.opt(), Ok(Some(OPT)));
    }

    #[test]
    fn limits_hold_for_header_question_and_opt() {
        let mut buf = [0; 40];
        assert!(Builder::new(&mut buf, 11).is_err());
        assert!(Builder::new(&mut buf[..11], 512).is_err());
        let mut reply = Builder::new(&mut buf, 22).unwrap();
        assert_eq!(reply.opt(OPT), Err(Truncated));
        assert_eq!(
            reply.question(&name("abcdef"), Rtype::A, Class::IN),
            Err(Truncated)
        );
        assert_eq!(reply.finish(), 12);
        let mut reply = Builder::new(&mut buf, 512).unwrap();
        let long = Opt {
            options: &[0; 17],
            ..OPT
        };
        assert_eq!(reply.opt(OPT), Ok(()));
        assert_eq!(
            reply.opt(Opt {
                options: &[0; 18],
                ..OPT
            }),
            Err(Truncated)
        );
        assert_eq!(reply.opt(long), Ok(()));
        assert_eq!(
            reply.question(&name("a"), Rtype::A, Class::IN),
            Err(Truncated)
        );
        assert_eq!(reply.finish(), 40);
        assert_eq!(Message::parse(&buf).unwrap().arcount(), 1);
    }

    #[test]
    fn raw_records_keep_their_octets_and_counts() {
        let other = b"\0\0\0\0\0\x01\0\x01\0\0\0\x01\x01a\0\0\x01\0\x01\
            \xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x02\xc0\x0c\
            \xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04abcd";
        let other = Message::parse(other).unwrap();
        let mut buf = [0; 100];
        for (limit, fits) in [(12 + 7 + 11 + 30, true), (12 + 7 + 11 + 29, false)] {
            let mut reply = Builder::new(&mut buf, limit).unwrap();
            reply.question(&name("A"), Rtype::A, Class::IN).unwrap();
            reply.opt(OPT).unwrap();
            let end = other.bytes().len();
            assert_eq!(reply.records_raw(&other, end, 1).is_ok(), fits);
            if !fits {
                // They fit without the additional record.
                reply.records_raw(&other, end - 16, 0).unwrap();
            }
            let len = reply.finish();
            let message = Message::parse(&buf[..len]).unwrap();
            let records: Vec<_> = message.records().map(Result::unwrap).collect();
            let owners: Vec<_> = records.iter().map(|r| r.name.to_string()).collect();
            if fits {
                assert_eq!(owners, ["A.", "A.", "."]);
                assert_eq!((message.ancount(), message.arcount()), (1, 2));
            } else {
                assert_eq!(owners, ["A.", "."]);
                assert_eq!((message.ancount(), message.arcount()), (1, 1));
            }
        }
    }

    #[test]
    #[should_panic(expected = "the records must keep their place")]
    fn raw_records_after_a_question_of_another_length_panic() {
        let other = Message::parse(&[0; 12]).unwrap();
        let mut buf = [0; 40];
        let mut reply = Builder::new(&mut buf, 40).unwrap();
        reply.question(&name("a"), Rtype::A, Class::IN).unwrap();
        let _panics = reply.records_raw(&other, 12, 0);
    }

    #[test]
    fn the_copied_question_of_another_message_keeps_its_case() {
        let question = b"\x01A\0\0\x01\0\x01";
        let bytes = [&b"\0\0\0\0\0\x01\0\0\0\0\0\0"[..], question].concat();
        let other = Message::parse(&bytes).unwrap();
        let mut buf = [0; 40];
        let mut reply = Builder::new(&mut buf, 40).unwrap();
        reply.question_raw(&other.question().unwrap()).unwrap();
        let len = reply.finish();
        assert_eq!(buf[..len], bytes);
    }
}
