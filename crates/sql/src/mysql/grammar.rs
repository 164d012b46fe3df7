//! How MySQL's texts are read: the parser library's grammar of MySQL with the precedence of MySQL's operators.
//!
//! From the tightest: `->` and `->>`, BINARY, `!`, unary minus and `~`, `^`, `* / DIV % MOD`, `+ -`, `<< >>`, `&`, `|`, comparisons (IS, LIKE, REGEXP
//! and IN among them), BETWEEN, NOT, `AND &&`, XOR, `OR ||` (MySQL 8.0 Reference Manual, 12.4.1).

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType, Expr, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, MySqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::build::plain_cast;
use super::compound_units::parse_extract;

const ARROW: u8 = 49;
const BINARY: u8 = 48;
const BANG: u8 = 46;
const BITWISE_XOR: u8 = 45;
const MULTIPLY: u8 = 40;
const SHIFT: u8 = 28;
const BITWISE_AND: u8 = 26;
const BITWISE_OR: u8 = 24;
const COMPARISON: u8 = 20;
const AND: u8 = 10;
const XOR: u8 = 8;
const OR: u8 = 5;

/// The grammar of MySQL's texts.
#[derive(Debug)]
pub(crate) struct MySqlGrammar;

const MYSQL: MySqlDialect = MySqlDialect {};

impl Dialect for MySqlGrammar {
    /// The parser checks in some places whether the dialect is MySQL.
    fn dialect(&self) -> TypeId {
        TypeId::of::<MySqlDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        MYSQL.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        MYSQL.is_identifier_part(ch)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        MYSQL.is_delimited_identifier_start(ch)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        MYSQL.identifier_quote_style(identifier)
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }

    fn supports_string_literal_concatenation(&self) -> bool {
        true
    }

    /// LIKE's patterns keep their `\%` and `\_`.
    fn ignores_wildcard_escapes(&self) -> bool {
        true
    }

    fn supports_numeric_prefix(&self) -> bool {
        true
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }

    fn supports_multiline_comment_hints(&self) -> bool {
        true
    }

    fn requires_single_line_comment_whitespace(&self) -> bool {
        true
    }

    fn require_interval_qualifier(&self) -> bool {
        true
    }

    fn supports_limit_comma(&self) -> bool {
        true
    }

    /// Not MySQL's, but how the arguments of `crossmatch` are named.
    fn supports_named_fn_args_with_rarrow_operator(&self) -> bool {
        true
    }

    /// `FOR SYSTEM_TIME AS OF`, and `AS OF` alone: see [`crate::table_states`].
    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }

    fn supports_double_ampersand_operator(&self) -> bool {
        true
    }

    fn supports_binary_kw_as_cast(&self) -> bool {
        true
    }

    fn supports_table_hints(&self) -> bool {
        true
    }

    fn supports_select_modifiers(&self) -> bool {
        true
    }

    fn supports_cross_join_constraint(&self) -> bool {
        true
    }

    fn supports_data_type_signed_suffix(&self) -> bool {
        true
    }

    fn is_table_factor_alias(&self, explicit: bool, kw: &Keyword, parser: &mut Parser) -> bool {
        MYSQL.is_table_factor_alias(explicit, kw, parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            Precedence::Xor => XOR,
            Precedence::Caret => BITWISE_XOR,
            Precedence::Ampersand => BITWISE_AND,
            Precedence::Pipe => BITWISE_OR,
            // The parser takes IN for a kind of BETWEEN.
            Precedence::Like | Precedence::Is | Precedence::Eq | Precedence::Between => COMPARISON,
            other => MYSQL.prec_value(other),
        }
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        let token = parser.peek_token_ref();
        let precedence = match &token.token {
            Token::Word(_) if is_mod(&token.token) => MULTIPLY,
            Token::Arrow | Token::LongArrow => ARROW,
            Token::ShiftLeft | Token::ShiftRight => SHIFT,
            Token::Overlap => AND,
            Token::StringConcat => OR,
            _ => return None,
        };
        Some(Ok(precedence))
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if let Some(extract) = parse_extract(parser) {
            return Some(extract);
        }
        if begins_with_binary(parser) {
            // The parser would take all that follows for the operand.
            parser.advance_token();
            let operand = parser.parse_subexpr(BINARY);
            return Some(operand.map(|operand| plain_cast(operand, DataType::Binary(None))));
        }
        let (op, precedence) = match parser.peek_token_ref().token {
            Token::ExclamationMark => (UnaryOperator::BangNot, BANG),
            // The parser takes these for looser than `^`.
            Token::Minus => (UnaryOperator::Minus, BITWISE_XOR),
            Token::Plus => (UnaryOperator::Plus, BITWISE_XOR),
            Token::Tilde => (UnaryOperator::BitwiseNot, BITWISE_XOR),
            _ => return None,
        };
        parser.advance_token();
        Some(parser.parse_subexpr(precedence).map(|expr| Expr::UnaryOp {
            op,
            expr: Box::new(expr),
        }))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if let Some(negated) = pattern_operator(parser) {
            let pattern = parser.parse_subexpr(COMPARISON);
            return Some(pattern.map(|pattern| Expr::RLike {
                negated,
                expr: Box::new(left.clone()),
                pattern: Box::new(pattern),
                regexp: true,
            }));
        }
        let op = if parser.parse_keyword(Keyword::DIV) {
            BinaryOperator::MyIntegerDivide
        } else if is_mod(&parser.peek_token_ref().token) {
            parser.advance_token();
            BinaryOperator::Modulo
        } else if parser.consume_token(&Token::StringConcat) {
            BinaryOperator::Or
        } else {
            return None;
        };
        Some(
            parser
                .parse_subexpr(precedence)
                .map(|right| Expr::BinaryOp {
                    left: Box::new(left.clone()),
                    op,
                    right: Box::new(right),
                }),
        )
    }
}

/// Whether BINARY and its operand follow; a column may have that name too.
fn begins_with_binary(parser: &Parser) -> bool {
    /// Words that may follow a column.
    const BEHIND_COLUMN: [Keyword; 32] = [
        Keyword::AND,
        Keyword::AS,
        Keyword::ASC,
        Keyword::BETWEEN,
        Keyword::COLLATE,
        Keyword::DESC,
        Keyword::DIV,
        Keyword::ELSE,
        Keyword::END,
        Keyword::EXCEPT,
        Keyword::FOR,
        Keyword::FROM,
        Keyword::GROUP,
        Keyword::HAVING,
        Keyword::IN,
        Keyword::INTERSECT,
        Keyword::INTO,
        Keyword::IS,
        Keyword::LIKE,
        Keyword::LIMIT,
        Keyword::NOT,
        Keyword::OR,
        Keyword::ORDER,
        Keyword::REGEXP,
        Keyword::RLIKE,
        Keyword::SEPARATOR,
        Keyword::THEN,
        Keyword::UNION,
        Keyword::WHEN,
        Keyword::WHERE,
        Keyword::WITH,
        Keyword::XOR,
    ];
    if !matches!(&parser.peek_token_ref().token, Token::Word(word) if word.keyword == Keyword::BINARY)
    {
        return false;
    }
    match &parser.peek_nth_token_ref(1).token {
        Token::Word(word) => !BEHIND_COLUMN.contains(&word.keyword),
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::DoubleQuotedString(_)
        | Token::NationalStringLiteral(_)
        | Token::HexStringLiteral(_)
        | Token::SingleQuotedByteStringLiteral(_)
        | Token::Placeholder(_)
        | Token::LParen
        | Token::Minus
        | Token::Tilde
        | Token::ExclamationMark => true,
        _ => false,
    }
}

/// Reads REGEXP or RLIKE, perhaps with a NOT; whether it has one. The parser would take a NULL behind it for a part of it.
fn pattern_operator(parser: &mut Parser) -> Option<bool> {
    const NAMES: [Keyword; 2] = [Keyword::REGEXP, Keyword::RLIKE];
    if parser.parse_one_of_keywords(&NAMES).is_some() {
        return Some(false);
    }
    let negated = NAMES
        .iter()
        .any(|name| parser.parse_keywords(&[Keyword::NOT, *name]));
    negated.then_some(true)
}

/// MOD between two operands; before a parenthesis at the start of an operand it is a function.
fn is_mod(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("mod"))
}
