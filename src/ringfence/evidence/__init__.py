"""What convinces others: verification, reports, dossiers and audits."""
