//! macOS links an extension module only with its undefined Python symbols allowed; nothing to do elsewhere.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
