"""What tests of several modules share: small random problems and a brute force to solve them."""
