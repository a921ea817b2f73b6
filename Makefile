# Six commands, each of which does all its own set-up on a Debian machine with Rust of rustup, as root; other
# users are told what is missing.

.PHONY: demo lab-demo packages static image test

# Build dns64d and the Tester, and measure the one with the other on this machine: one to two minutes
# after the build.
demo:
	.ci/install iproute2 util-linux
	cargo build --release --locked --package dns64bench --package dns64d
	target/release/dns64bench demo

# The same over ssh, in a laboratory of three hosts that are namespaces of this machine. Its report stays in target/lab-demo.
lab-demo:
	.ci/install iproute2 util-linux openssh-client openssh-server
	cargo build --release --locked --package dns64bench --package dns64d
	deploy/rehearsal/demo target/release/dns64bench target/release/dns64d target/lab-demo

# Debian and RPM packages in target/packages.
packages:
	deploy/packages/build

# Tarballs of both programs, linked statically, in target/packages.
static:
	deploy/packages/static

# An OCI image of dns64d in target/packages.
image:
	deploy/packages/image

# Everything that has to pass before a change lands; without root, all of it that can run.
test:
	.ci/run fmt bpf+budget+net+systems+ansible+driver/tools+lint+docs+rules+fuzz/build+test
