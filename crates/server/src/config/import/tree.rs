//! The statements of an unbound.conf (unbound.conf(5)) and of a named.conf (named.conf(5)).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::error::{ConfigError, Fault, Problem};
use crate::config::read_text;

/// A statement.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    /// `FILE:LINE:COLUMN`.
    place: String,
    /// Its words, without quotes.
    words: Vec<String>,
    /// The statements in each pair of braces, or below the name of a clause.
    blocks: Vec<Vec<Self>>,
}

impl Statement {
    /// A word by its number; empty if there is none.
    pub(super) fn word(&self, number: usize) -> &str {
        self.words.get(number).map_or("", String::as_str)
    }

    /// The word after this one; empty if there is none.
    pub(super) fn after(&self, word: &str) -> &str {
        let at = self.words.iter().position(|other| other == word);
        at.map_or("", |at| self.word(at + 1))
    }

    /// The statements of a block by its number.
    pub(super) fn block(&self, number: usize) -> &[Self] {
        self.blocks.get(number).map_or(&[], Vec::as_slice)
    }

    /// Whether it has a block.
    pub(super) fn has_block(&self) -> bool {
        !self.blocks.is_empty()
    }
}

/// On one line, without control characters.
impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}: {}", self.place, self.words.join(" "));
        f.write_str(&text.replace(char::is_control, " "))?;
        f.write_str(if self.has_block() { " { ... }" } else { "" })
    }
}

/// The last statement with this first word: that in effect.
pub(super) fn last<'s>(statements: &'s [Statement], word: &str) -> Option<&'s Statement> {
    statements.iter().rfind(|it| it.word(0) == word)
}

/// A file that is being read.
pub(super) struct File<'f> {
    path: &'f Path,
    text: &'f str,
    /// Where its lines begin.
    lines: Vec<usize>,
    /// Whether it has statements that end with semicolons, and blocks in braces. Otherwise each line has a key with a
    /// colon, and values.
    pub(super) is_named: bool,
    /// Number of files that include it.
    depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    Word(&'t str),
    Open,
    Close,
    End,
}

/// Largest depth of blocks in blocks, and of files that include files.
pub(super) const DEPTH_MAX: usize = 16;

impl<'f> File<'f> {
    /// A file with this text, in the syntax of its first word.
    pub(super) fn new(path: &'f Path, text: &'f str) -> Self {
        let lines = text.lines().map(str::trim_start);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let first = lines.next().and_then(|line| line.split_whitespace().next());
        Self {
            path,
            text,
            lines: [0]
                .into_iter()
                .chain(text.match_indices('\n').map(|(at, _)| at + 1))
                .collect(),
            is_named: !first.is_some_and(|word| word.ends_with(':')),
            depth: 0,
        }
    }

    /// Its statements, with those of the files that it includes.
    ///
    /// # Errors
    ///
    /// The first fault in the syntax; an included file that cannot be read.
    pub(super) fn statements(&self) -> Result<Vec<Statement>, ConfigError> {
        self.block(&mut self.tokens()?.into_iter(), &[])
    }

    fn problem(&self, at: usize, text: impl Into<String>) -> Problem {
        let (span, text) = (at..at, text.into());
        Problem::new(
            &self.path.display().to_string(),
            self.text,
            Fault { span, text },
        )
    }

    fn tokens(&self) -> Result<Vec<(usize, Token<'f>)>, ConfigError> {
        let mut tokens = Vec::new();
        let mut is_open = false;
        let mut at = 0;
        while at < self.text.len() {
            let (token, len) = self.token(at)?;
            let is_first = matches!(tokens.last(), None | Some((_, Token::Open | Token::End)));
            match token {
                Some(Token::Word(word)) if is_first && !self.is_named => {
                    let Some(key) = word.strip_suffix(':') else {
                        let text = format!("{word:?} is not a key; write it like `interface: ::1`");
                        return Err(self.problem(at, text).into());
                    };
                    let is_clause = CLAUSES.split(' ').any(|clause| clause == key);
                    if is_open && (is_clause || key.starts_with("include")) {
                        tokens.extend([(at, Token::Close), (at, Token::End)]);
                    }
                    is_open = is_clause || is_open && !key.starts_with("include");
                    tokens.push((at, Token::Word(key)));
                    tokens.extend(is_clause.then_some((at, Token::Open)));
                }
                token => tokens.extend(token.map(|token| (at, token))),
            }
            at += len;
        }
        if !self.is_named {
            tokens.push((at, Token::End));
        }
        if is_open {
            tokens.extend([(at, Token::Close), (at, Token::End)]);
        }
        Ok(tokens)
    }

    /// The token at an octet, if blanks and comments do not begin there, and its length.
    fn token(&self, at: usize) -> Result<(Option<Token<'f>>, usize), ConfigError> {
        let rest = &self.text[at..];
        let first = rest.chars().next().unwrap_or('\n');
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        let is_named = self.is_named;
        let ends = |c: char| c.is_whitespace() || c == '"' || is_named && "{};".contains(c);
        Ok(match first {
            '\n' if !is_named => (Some(Token::End), 1),
            _ if first.is_whitespace() => (None, first.len_utf8()),
            '#' => (None, line.len()),
            '/' if is_named && rest.starts_with("//") => (None, line.len()),
            '/' if is_named && rest.starts_with("/*") => match rest[2..].find("*/") {
                Some(end) => (None, end + 4),
                None => return Err(self.problem(at, "this comment has no end; add */").into()),
            },
            '{' if is_named => (Some(Token::Open), 1),
            '}' if is_named => (Some(Token::Close), 1),
            ';' if is_named => (Some(Token::End), 1),
            '"' | '\'' if first == '"' || !is_named => {
                let inside = if is_named { &rest[1..] } else { &line[1..] };
                let Some(end) = inside.find(first) else {
                    let text = format!("this text has no end; add {first}");
                    return Err(self.problem(at, text).into());
                };
                (Some(Token::Word(&inside[..end])), end + 2)
            }
            _ => {
                let len = rest.find(ends).unwrap_or(rest.len());
                (Some(Token::Word(&rest[..len])), len)
            }
        })
    }

    /// The statements up to the end of the file, or of the blocks that were opened.
    fn block(
        &self,
        tokens: &mut impl Iterator<Item = (usize, Token<'f>)>,
        opened: &[usize],
    ) -> Result<Vec<Statement>, ConfigError> {
        let mut statements = Vec::new();
        let mut current: Option<(usize, Statement)> = None;
        while let Some((at, token)) = tokens.next() {
            let wrong = |text: &str| Err(self.problem(at, text).into());
            match token {
                Token::Word(word) => {
                    let (_, it) = current.get_or_insert_with(|| (at, self.statement(at)));
                    it.words.push(word.to_owned());
                }
                Token::Open if opened.len() == DEPTH_MAX => {
                    return wrong("this block is too deep in others; remove it");
                }
                Token::Open => {
                    let inside = self.block(tokens, &[opened, &[at]].concat())?;
                    let (_, it) = current.get_or_insert_with(|| (at, self.statement(at)));
                    it.blocks.push(inside);
                }
                Token::End => match current.take() {
                    Some((at, it)) if it.word(0).starts_with("include") => {
                        statements.extend(self.included(at, it.word(1))?);
                    }
                    ended => statements.extend(ended.map(|(_, it)| it)),
                },
                Token::Close if current.is_some() => {
                    return wrong("the statement before this brace has no end; add ;");
                }
                Token::Close if opened.is_empty() => {
                    return wrong("this brace closes no block; remove it");
                }
                Token::Close => return Ok(statements),
            }
        }
        match (opened.last(), current) {
            (Some(&at), _) => Err(self.problem(at, "this block has no end; add };").into()),
            (_, Some((at, _))) => Err(self.problem(at, "this statement has no end; add ;").into()),
            (None, None) => Ok(statements),
        }
    }

    fn statement(&self, at: usize) -> Statement {
        let line = self.lines.partition_point(|begin| *begin <= at);
        let column = self.text[self.lines[line - 1]..at].chars().count() + 1;
        Statement {
            place: format!("{}:{line}:{column}", self.path.display()),
            words: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// The statements of the files of a pattern: relative to this file, with `*` for any characters of a file's name.
    fn included(&self, at: usize, pattern: &str) -> Result<Vec<Statement>, ConfigError> {
        if self.depth == DEPTH_MAX {
            return Err(self
                .problem(at, "too many files include one another; remove this")
                .into());
        }
        let mut statements = Vec::new();
        for path in matches(self.path.with_file_name("").join(pattern)) {
            let name = path.display().to_string();
            let text = read_text(&path, &name).map_err(|error| match error {
                ConfigError::Unreadable { reason, .. } => {
                    let text =
                        format!("{name} cannot be read: {reason}; copy it there, or remove this");
                    self.problem(at, text).into()
                }
                error => error,
            })?;
            let mut file = File::new(&path, &text);
            (file.is_named, file.depth) = (self.is_named, self.depth + 1);
            statements.extend(file.statements()?);
        }
        Ok(statements)
    }
}

/// The files of a pattern, sorted.
fn matches(pattern: PathBuf) -> Vec<PathBuf> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let Some((begin, end)) = name.split_once('*') else {
        return vec![pattern];
    };
    let folder = pattern
        .parent()
        .and_then(|folder| fs::read_dir(folder).ok());
    let files = folder.into_iter().flatten().filter_map(Result::ok);
    let paths = files.map(|file| file.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix(begin)
            .is_some_and(|rest| rest.ends_with(end))
    });
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths
}

/// The clauses of an unbound.conf.
const CLAUSES: &str = "server forward-zone stub-zone auth-zone view remote-control python dynlib cachedb dnscrypt rpz dnstap ipset ipsecmod";
