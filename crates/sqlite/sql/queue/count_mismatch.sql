UPDATE /*p*/inbox_peers SET mismatches = mismatches + 1 WHERE peer_id = ?1;
