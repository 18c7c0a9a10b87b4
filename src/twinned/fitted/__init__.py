"""What a fitted twin knows of its errors: prediction intervals and the applicability domain."""
