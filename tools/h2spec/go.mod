// What tools/h2spec.sh builds: h2spec, which has no go.mod of its own at this version, and the
// dependencies that it names in its Gopkg.lock.
module fencegate/tools/h2spec

go 1.18

require (
	github.com/fatih/color v0.0.0-20161025120501-bf82308e8c85 // indirect
	github.com/mattn/go-colorable v0.1.0 // indirect
	github.com/mattn/go-isatty v0.0.4 // indirect
	github.com/spf13/cobra v0.0.0-20170118185516-dc208f4211e7 // indirect
	github.com/spf13/pflag v1.0.3 // indirect
	github.com/summerwind/h2spec v2.2.1+incompatible
	golang.org/x/net v0.0.0-20161104230106-55a3084c9119 // indirect
)
