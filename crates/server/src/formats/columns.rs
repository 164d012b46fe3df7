//! The columns of a table as the Virtual Observatory describes them.
//!
//! Source: VOTable 1.4 (Ochsenbein et al., IVOA Recommendation 2019), section 2.1, and DALI 1.1 for `xtype`.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use engine::{DESCRIPTION, UCD, UNIT, UTYPE, XTYPE};
pub(crate) use result_formats::{ItemForm, ValueForm};

/// The role of a column in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// Names the row.
    Identifier,
    /// Right ascension of the row's position, degrees.
    RightAscension,
    /// Declination of the row's position, degrees.
    Declination,
    /// Distance between the two ends of a pair, arcseconds.
    Separation,
    /// Anything else.
    Other,
}

/// A column of a table that is sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableColumn {
    /// Its name.
    pub(crate) name: String,
    /// What it is for.
    pub(crate) role: Role,
    /// How its values are sent.
    pub(crate) form: ValueForm,
    /// What it is physically.
    pub(crate) ucd: Option<String>,
    /// The unit of its values.
    pub(crate) unit: Option<String>,
    /// How its values are to be read.
    pub(crate) xtype: Option<String>,
    /// Its place in a data model.
    pub(crate) utype: Option<String>,
    /// What it means, in words.
    pub(crate) description: Option<String>,
}

impl TableColumn {
    /// A column of a table, its UCD in the words of UCD1+.
    pub(crate) fn new(field: &Field, role: Role) -> Self {
        // What the column of the table is that it comes from.
        let word = |name: &str| field.metadata().get(name).cloned();
        let ucd = match role {
            Role::Identifier => Some("meta.id;meta.main"),
            Role::RightAscension => Some("pos.eq.ra;meta.main"),
            Role::Declination => Some("pos.eq.dec;meta.main"),
            Role::Separation => Some("pos.angDistance"),
            Role::Other => None,
        };
        let form = match role {
            // Simple Cone Search wants a text, whatever the key's type.
            Role::Identifier => ValueForm::Text,
            // A time that is a text is one of ASCII (DALI 1.1, section 3.3.3).
            _ if field
                .metadata()
                .get(XTYPE)
                .is_some_and(|xtype| xtype == "timestamp") =>
            {
                ValueForm::Text
            }
            _ => ValueForm::of(field.data_type()),
        };
        Self {
            name: field.name().clone(),
            role,
            utype: word(UTYPE),
            description: word(DESCRIPTION),
            ucd: ucd.map(str::to_owned).or_else(|| word(UCD)),
            unit: unit(role).map(str::to_owned).or_else(|| word(UNIT)),
            xtype: form.xtype().map(str::to_owned).or_else(|| word(XTYPE)),
            form,
        }
    }

    /// The same in a response to a Simple Cone Search, whose clients look for UCD1 words.
    pub(crate) fn of_cone(field: &Field, role: Role) -> Self {
        let ucd = match role {
            Role::Identifier => Some("ID_MAIN"),
            Role::RightAscension => Some("POS_EQ_RA_MAIN"),
            Role::Declination => Some("POS_EQ_DEC_MAIN"),
            Role::Separation | Role::Other => None,
        };
        Self {
            ucd: ucd.map(str::to_owned),
            ..Self::new(field, role)
        }
    }

    /// A field of Arrow in the type of its form.
    pub(crate) fn arrow_field(&self) -> FieldRef {
        Arc::new(Field::new(&self.name, self.form.arrow(), true))
    }
}

fn unit(role: Role) -> Option<&'static str> {
    match role {
        Role::RightAscension | Role::Declination => Some("deg"),
        Role::Separation => Some("arcsec"),
        Role::Identifier | Role::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn a_key_is_sent_as_text() {
        let field = Field::new("objectId", DataType::Int64, false);
        let column = TableColumn::of_cone(&field, Role::Identifier);
        assert_eq!(column.form.datatype(), "char");
        assert_eq!(column.ucd.as_deref(), Some("ID_MAIN"));
    }
}
