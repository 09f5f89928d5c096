module github.com/ernic-dev/ernic

go 1.26
