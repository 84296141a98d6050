UPDATE "_t" SET a_ = NULL;
