-- The sample of the recipe `buildos`: events of a venue, and the bookings for them.
CREATE TABLE events (id INTEGER PRIMARY KEY, title TEXT NOT NULL, hall TEXT NOT NULL, day TEXT NOT NULL, seats INTEGER NOT NULL);
CREATE TABLE bookings (id INTEGER PRIMARY KEY, event INTEGER NOT NULL REFERENCES events, guest TEXT NOT NULL, seats INTEGER NOT NULL);
INSERT INTO events VALUES
    (1, 'String quartet', 'Small hall', '2026-12-03', 60), (2, 'Chess evening', 'Foyer', '2026-12-04', 40),
    (3, 'Winter concert', 'Great hall', '2026-12-05', 400), (4, 'Poetry slam', 'Foyer', '2026-12-05', 40);
INSERT INTO bookings (event, guest, seats) VALUES
    (1, 'Aalto', 30), (1, 'Brandt', 28), (2, 'Castro', 12), (3, 'Dvořák', 120), (3, 'Egede', 35), (4, 'Farkas', 41);
