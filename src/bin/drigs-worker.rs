fn main() {
    drigs::worker::launcher::run_if_asked();
}
