-- Rows that were written in this transaction, of messages whose turn did not come.
DELETE FROM /*p*/inbox WHERE row_id BETWEEN ?1 AND ?2;
