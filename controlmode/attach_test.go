package controlmode

func attachAndHang() {}
