//go:build tools

// Package tools names the program that minio.sh builds, so that the module keeps what it needs.
package tools

import _ "github.com/minio/minio"
