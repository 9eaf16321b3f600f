"""Growth: sessions of ten shapes that double in size, and the ratio of the times that commands take on them."""
