//! The SQL of the program, found in its source: every constant that holds a statement, and every statement outside of a
//! constant, which the style forbids.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, ExprLit, Lit, Macro, Token, Type};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The crates of the program.
const CRATES: [&str; 10] = [
    "ledger/core",
    "ledger/log",
    "ledger/telemetry",
    "gateway/egress",
    "gateway/worker",
    "gateway/api",
    "projector",
    "schema",
    "deploy",
    "deploy/dev",
];

/// The first words of statements.
const VERBS: [&str; 7] = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "COPY", "MERGE"];

/// The projector's macros that make a statement of a declaration of rows.
const ROW_MACROS: [&str; 2] = ["copy_rows", "unnest_rows"];

/// A constant that holds a statement.
#[derive(Debug, Clone)]
pub struct Statement {
    /// File and name: `ledger/log/src/reader.rs READ`.
    pub name: String,
    /// Its folder; for a read model, the model's name.
    pub folder: String,
    /// The text, placeholders included.
    pub sql: String,
}

/// The result of the search.
#[derive(Debug, Default)]
pub struct Found {
    /// The statements.
    pub statements: Vec<Statement>,
    /// Statements outside of constants, and constants that could not be read.
    pub astray: Vec<String>,
}

/// Reads the source of every crate of the program.
pub fn of_the_program() -> Found {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut found = Found::default();
    for name in CRATES {
        let mut files = Vec::new();
        collect(&root.join(name).join("src"), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).expect("source can be read");
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{shown}: {error}"));
            let folder = file.parent().and_then(Path::file_name).unwrap_or_default();
            let folder = folder.to_string_lossy().into_owned();
            let mut reader = Reader { file: shown, folder, macros: HashMap::new(), found: &mut found };
            reader.learn_macros(&syntax);
            reader.visit_file(&syntax);
        }
    }
    found
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn is_statement(text: &str) -> bool {
    let mut words = text.split_whitespace();
    // A path follows the verb of a request, and of no statement.
    words.next().is_some_and(|word| VERBS.contains(&word))
        && words.next().is_some_and(|word| !word.starts_with('/'))
}

/// An arm of a macro that the file defines: its parameters and its expansion.
struct Arm {
    parameters: Vec<String>,
    body: TokenStream,
}

struct Reader<'f> {
    file: String,
    folder: String,
    macros: HashMap<String, Vec<Arm>>,
    found: &'f mut Found,
}

impl Reader<'_> {
    fn learn_macros(&mut self, file: &syn::File) {
        for item in &file.items {
            let syn::Item::Macro(item) = item else { continue };
            if let (Some(name), true) = (&item.ident, item.mac.path.is_ident("macro_rules")) {
                self.macros.insert(name.to_string(), arms(item.mac.tokens.clone()));
            }
        }
    }

    /// The text of a constant expression; `None` if it is not made of literals.
    fn text(&self, expression: &Expr) -> Option<String> {
        match expression {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => Some(number.to_string()),
            Expr::Group(group) => self.text(&group.expr),
            Expr::Paren(paren) => self.text(&paren.expr),
            Expr::Macro(expression) => self.expand(&expression.mac),
            _ => None,
        }
    }

    fn expand(&self, mac: &Macro) -> Option<String> {
        let arguments = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(mac.tokens.clone()).ok()?;
        if mac.path.is_ident("concat") {
            return arguments.iter().map(|argument| self.text(argument)).collect();
        }
        let name = mac.path.get_ident()?.to_string();
        let arm = self.macros.get(&name)?.iter().find(|arm| arm.parameters.len() == arguments.len())?;
        let tokens = arguments.iter().map(|argument| quote::quote!(#argument));
        let values: HashMap<_, _> = arm.parameters.iter().cloned().zip(tokens).collect();
        let body: Expr = syn::parse2(substitute(arm.body.clone(), &values)).ok()?;
        self.text(&body)
    }

    fn constant(&mut self, name: &syn::Ident, ty: &Type, expression: &Expr) {
        let name = format!("{} {name}", self.file);
        let is_text = matches!(ty, Type::Reference(reference)
            if matches!(&*reference.elem, Type::Path(path) if path.path.is_ident("str")));
        if !is_text {
            return visit::visit_expr(self, expression);
        }
        match self.text(expression) {
            Some(sql) if is_statement(&sql) => {
                self.found.statements.push(Statement { name, folder: self.folder.clone(), sql });
            }
            Some(_) => {}
            // The constant of another type is read where it is declared.
            None if reads_a_file(expression) || is_qualified(expression) => {}
            None => self.found.astray.push(format!("{name}: cannot be read")),
        }
    }

    fn stray(&mut self, text: &str) {
        if is_statement(text) {
            let start: String = text.chars().take(60).collect();
            self.found.astray.push(format!("{}: {start}…", self.file));
        }
    }

    fn stray_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.stray_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(Lit::Str(text)) = syn::parse2::<Lit>(TokenTree::from(literal).into()) {
                        self.stray(&text.value());
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let of_tests = item.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
        });
        if !of_tests {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(&item.ident, &item.ty, &item.expr);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(&item.ident, &item.ty, &item.expr);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        // The expansion of a macro is visited where it is used.
        if item.ident.is_some() {
            return;
        }
        if !ROW_MACROS.iter().any(|name| item.mac.path.is_ident(name)) {
            return visit::visit_item_macro(self, item);
        }
        match rows_statement(&item.mac) {
            Some((name, sql)) => {
                let name = format!("{} {name}", self.file);
                self.found.statements.push(Statement { name, folder: self.folder.clone(), sql });
            }
            None => self.found.astray.push(format!("{}: {}", self.file, item.mac.tokens)),
        }
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        self.stray_tokens(mac.tokens.clone());
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.stray(&text.value());
    }
}

fn is_qualified(expression: &Expr) -> bool {
    matches!(expression, Expr::Path(path) if path.path.segments.len() > 1)
}

fn reads_a_file(expression: &Expr) -> bool {
    matches!(expression, Expr::Macro(expression)
        if expression.mac.path.is_ident("include_str") || expression.mac.path.is_ident("env"))
}

/// The name and the text of the statement that one of the [`ROW_MACROS`] makes.
fn rows_statement(mac: &Macro) -> Option<(String, String)> {
    let tokens: Vec<_> = mac.tokens.clone().into_iter().collect();
    let (TokenTree::Ident(name), TokenTree::Group(declared)) = (tokens.first()?, tokens.last()?) else {
        return None;
    };
    // The partition is the first column of every table.
    let mut columns = columns(declared.stream());
    columns.insert(0, ("partition".to_owned(), "int2".to_owned()));
    let names = columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    if mac.path.is_ident("copy_rows") {
        let table = tokens.windows(2).find_map(|pair| match pair {
            [TokenTree::Ident(into), TokenTree::Ident(table)] if into == "into" => Some(table),
            _ => None,
        })?;
        return Some((name.to_string(), format!("COPY {{schema}}.{table} ({names}) FROM STDIN BINARY")));
    }
    let arrays = (1..).zip(&columns).map(|(number, (_, sql_type))| format!("${number}::{sql_type}[]"));
    let arrays = arrays.collect::<Vec<_>>().join(", ");
    let pieces = tokens.iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => Some(group.stream()),
        _ => None,
    })?;
    let mut sql = String::new();
    for piece in pieces {
        if let TokenTree::Group(group) = &piece {
            let words: Vec<_> = group.stream().into_iter().map(|token| token.to_string()).collect();
            match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["columns"] => sql.push_str(&names),
                ["rows", "as", table] => {
                    sql.extend(["unnest(", arrays.as_str(), ") AS ", *table, "(", names.as_str(), ")"]);
                }
                _ => return None,
            }
        } else {
            let Lit::Str(text) = syn::parse2(piece.into()).ok()? else { return None };
            sql.push_str(&text.value());
        }
    }
    Some((name.to_string(), sql))
}

/// The declared columns, `name: sql_type = value`: their names and types.
fn columns(declared: TokenStream) -> Vec<(String, String)> {
    let tokens: Vec<_> = declared.into_iter().collect();
    let columns = tokens.split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ','));
    let named = columns.filter_map(|column| match column {
        [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Ident(sql_type), ..] => {
            Some((name.to_string(), sql_type.to_string()))
        }
        _ => None,
    });
    named.collect()
}

/// The arms of `macro_rules!`.
fn arms(tokens: TokenStream) -> Vec<Arm> {
    let groups: Vec<Group> = tokens
        .into_iter()
        .filter_map(|token| if let TokenTree::Group(group) = token { Some(group) } else { None })
        .collect();
    let pairs = groups.chunks_exact(2);
    pairs.map(|pair| Arm { parameters: parameters(pair[0].stream()), body: pair[1].stream() }).collect()
}

/// The names after each `$`.
fn parameters(pattern: TokenStream) -> Vec<String> {
    let tokens: Vec<_> = pattern.into_iter().collect();
    let names = tokens.windows(2).filter_map(|pair| match pair {
        [TokenTree::Punct(punct), TokenTree::Ident(name)] if punct.as_char() == '$' => Some(name.to_string()),
        _ => None,
    });
    names.collect()
}

fn substitute(body: TokenStream, values: &HashMap<String, TokenStream>) -> TokenStream {
    let mut result = Vec::new();
    let mut tokens = body.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '$' => {
                if let Some(TokenTree::Ident(name)) = tokens.next()
                    && let Some(value) = values.get(&name.to_string())
                {
                    result.push(TokenTree::Group(Group::new(Delimiter::None, value.clone())));
                }
            }
            TokenTree::Group(group) => {
                let inner = substitute(group.stream(), values);
                result.push(TokenTree::Group(Group::new(group.delimiter(), inner)));
            }
            other @ (TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_)) => result.push(other),
        }
    }
    result.into_iter().collect()
}
